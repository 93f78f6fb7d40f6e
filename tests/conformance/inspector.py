"""The official Inspector against holdlog over stdio, strict, in both eras of the protocol.

    python -m tests.conformance.inspector     make inspector

Exit code 1 when it finds anything in our schemas, or cannot use what we serve.
"""

import subprocess
import sys
import tempfile
from typing import Final

from tests.conformance.node import node
from tests.support.programs import HOLDLOG

ERAS: Final = ("legacy", "modern")
SET: Final = ("namespace=n", "key=k", "value=1", "updated_by=ann", "force=true")
STEPS: Final = (
    ("tools/list", "--strict"),
    ("tools/call", "--tool-name", "holdlog_set", *(part for pair in SET for part in ("--tool-arg", pair))),
    ("tools/call", "--tool-name", "holdlog_get", "--tool-arg", "namespace=n", "--tool-arg", "key=k"),
)


def main() -> int:
    inspector = [*node("@modelcontextprotocol/inspector", "mcp-inspector"), "--cli"]
    with tempfile.TemporaryDirectory() as folder:
        server = [HOLDLOG, "serve", "--tools", "all", "--db", f"{folder}/state.db"]
        failed = [
            step for era in ERAS for step in STEPS if not is_clean([*inspector, "--protocol-era", era], server, step)
        ]
    print(f"{'FAILED' if failed else 'passed'}: the Inspector over stdio, {' and '.join(ERAS)}")
    return 1 if failed else 0


def is_clean(inspector: list[str], server: list[str], step: tuple[str, ...]) -> bool:
    """Whether a step succeeds without a complaint, which is printed."""
    command = [*inspector, *server, "--method", *step]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    complaint = done.stderr.strip()
    if done.returncode or complaint:
        print(f"{' '.join(command)}: exit code {done.returncode} {complaint or done.stdout.strip()}", file=sys.stderr)
    return not (done.returncode or complaint)


if __name__ == "__main__":
    sys.exit(main())
