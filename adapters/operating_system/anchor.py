"""Hands checkpoints to a command of the operator, which keeps them where nobody who can write the store can change
them."""

import subprocess
from typing import Final

from holdlog.domain.refusals import UnavailableError

ANCHOR_SECONDS: Final = 30.0
"""Seconds that the command may take."""


def hand_over(command: str, text: str) -> None:
    """Run a shell command with `text` on its standard input. Raises UnavailableError if it fails."""
    try:
        done = subprocess.run(  # the operator's own command line
            command, shell=True, input=text, text=True, encoding="utf-8", stdout=subprocess.DEVNULL,
            timeout=ANCHOR_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"the anchor command did not end within {ANCHOR_SECONDS:.0f} s") from None
    except OSError as error:
        raise UnavailableError(f"the anchor command cannot be run ({error.strerror})") from None
    if done.returncode != 0:
        raise UnavailableError(f"the anchor command failed with exit code {done.returncode}")
