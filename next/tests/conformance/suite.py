"""The official conformance suite against holdlog over HTTP, the only transport that it tests, in both eras of the
protocol.

    python -m tests.conformance.suite     make conformance

Exit code 1 if a scenario of SERVED fails. The others need tools, prompts, resources or requests to clients that holdlog
does not have.
"""

import re
import subprocess
import sys
import tempfile
from typing import Final

from tests.conformance.node import node
from tests.support.programs import HttpServer

REVISIONS: Final = ("2025-11-25", "2026-07-28")
SERVED: Final = frozenset(
    {
        "caching",
        "dns-rebinding-protection",
        "http-header-validation",
        "input-required-result-ignore-extra-params",
        "input-required-result-missing-input-response",
        "input-required-result-unsupported-methods",
        "input-required-result-validate-input",
        "logging-set-level",
        "ping",
        "prompts-list",
        "resources-list",
        "sep-2164-resource-not-found",
        "server-initialize",
        "server-session-lifecycle",
        "server-sse-multiple-streams",
        "tools-call-error",
        "tools-list",
    }
)
_LINE: Final = re.compile(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed", re.MULTILINE)


def main() -> int:
    suite, wrong = node("@modelcontextprotocol/conformance", "conformance"), []
    with tempfile.TemporaryDirectory() as folder:
        server = HttpServer(f"{folder}/state.db", "--tools", "all")
        results = {revision: run([*suite, "server", "--url", f"{server.url}/mcp"], revision) for revision in REVISIONS}
        server.close()
    for revision, failed in results.items():
        wrong += [
            f"{revision} {name}: {failed[name]} checks fail" for name in sorted(SERVED & failed.keys()) if failed[name]
        ]
    missing = sorted(SERVED - {name for failed in results.values() for name in failed})
    wrong += [f"{name}: is not in the suite any more" for name in missing]
    print("\n".join([*wrong, f"{'FAILED' if wrong else 'passed'}: the conformance suite, {' and '.join(REVISIONS)}"]))
    return 1 if wrong else 0


def run(command: list[str], revision: str) -> dict[str, int]:
    """How many checks of each scenario fail."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*command, "--requirements", revision, "-o", folder], capture_output=True, text=True, timeout=300
        )
    failed = {name: int(count) for name, _, count in _LINE.findall(done.stdout)}
    if not failed:
        raise SystemExit(f"the suite reported nothing: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
