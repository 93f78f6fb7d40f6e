"""The official Inspector against holdlog over HTTP and stdio, strict, in both eras of the protocol.

    python -m tests.conformance.inspector     make inspector

Exit code 1 when it finds anything in our schemas, or cannot use what we serve.
"""

import subprocess
import sys
import tempfile
from typing import Final

from tests.conformance.node import node
from tests.conformance.serving import HOLDLOG, serving

ERAS: Final = ("legacy", "modern")
SET: Final = ("namespace=n", "key=k", "value=1", "updated_by=ann", "force=true")
STEPS: Final = (
    ("tools/list", "--strict"),
    ("tools/call", "--tool-name", "holdlog_set", *(part for pair in SET for part in ("--tool-arg", pair))),
    ("tools/call", "--tool-name", "holdlog_get", "--tool-arg", "namespace=n", "--tool-arg", "key=k"),
    ("resources/list",),
    ("resources/templates/list",),
    ("resources/read", "--uri", "state://n/k"),
)


def main() -> int:
    inspector = [*node("@modelcontextprotocol/inspector", "mcp-inspector"), "--cli"]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        place = ("--db", f"{folder}/state.db")
        stdio = [sys.executable, "-m", "holdlog", "serve", "--tools", "all", *place]
        with serving([*HOLDLOG, *place, "--port"]) as url:
            for target, steps in (([url], STEPS), (stdio, STEPS[:1])):
                for era in ERAS:
                    for step in steps:
                        failed += not clean(inspector, target, era, step)
    print(f"{'FAILED' if failed else 'passed'}: the Inspector, {' and '.join(ERAS)}")
    return 1 if failed else 0


def clean(inspector: list[str], target: list[str], era: str, step: tuple[str, ...]) -> bool:
    """Whether a step succeeds without a word of complaint."""
    command = [*inspector, "--protocol-era", era]
    command += ["--server-url", *target] if len(target) == 1 else target
    command += ["--method", *step]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    told = done.stderr.strip()
    if done.returncode or told:
        print(f"{era} {' '.join(step)}: exit code {done.returncode} {told or done.stdout.strip()}", file=sys.stderr)
    return not (done.returncode or told)


if __name__ == "__main__":
    sys.exit(main())
