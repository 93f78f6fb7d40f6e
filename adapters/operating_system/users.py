"""The names that the user of this process has on this machine."""

import getpass
import os
import sys
from contextlib import suppress
from typing import Final

VARIABLE: Final = "HOLDLOG_AGENT"
"""The author that the command line uses if none is named, instead of the user's name."""


def local_names() -> frozenset[str]:
    """The names of the user that runs this process, and of the author that its command line would use."""
    names = {os.environ.get(VARIABLE)}
    with suppress(OSError, KeyError, ImportError):
        names.add(getpass.getuser())
    if sys.platform != "win32":
        import pwd

        with suppress(KeyError):  # a container may have users without names
            names.add(pwd.getpwuid(os.geteuid()).pw_name)
    return frozenset(name for name in names if name)
