"""The official conformance suite against holdlog over HTTP, in both revisions of the protocol it knows.

    python -m tests.conformance [--write]     make conformance

Exit code 1 if a scenario differs from tests/conformance/scenarios.py, or is not listed there.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.node import PACKAGES, ROOT, node
from tests.conformance.scenarios import NOT_OURS, REVISIONS, SERVED, WITH_FIXTURES
from tests.conformance.serving import HOLDLOG, serving

SUITE = "@modelcontextprotocol/conformance"
DOCUMENT = ROOT / "docs" / "conformance.md"
_LINE = re.compile(r"^([✓✗]) (\S+): (\d+) passed, (\d+) failed", re.MULTILINE)

Outcome = dict[str, tuple[int, int]]
"""Scenario -> checks that passed, and that failed."""


def main() -> int:
    suite = node(SUITE, "conformance")
    served: dict[str, Outcome] = {}
    fixtures: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as folder:
        with serving([*HOLDLOG, "--db", f"{folder}/state.db", "--port"]) as url:
            served = {revision: run(suite, url, revision) for revision in REVISIONS}
        with serving(["-m", "tests.conformance.fixtures"]) as url:
            fixtures = {revision: run(suite, url, revision) for revision in REVISIONS}
    wrong = list(dict.fromkeys(findings(served, fixtures)))
    for line in wrong:
        print(line, file=sys.stderr)
    text = document(served, fixtures)
    if "--write" in sys.argv[1:]:
        DOCUMENT.write_text(text)
    elif not wrong and DOCUMENT.read_text() != text:
        wrong = ["docs/conformance.md is out of date: make conformance ARGS=--write"]
        print(wrong[0], file=sys.stderr)
    passed = {revision: sum(it[0] for it in served[revision].values()) for revision in REVISIONS}
    print(
        f"{'FAILED' if wrong else 'passed'}: " + ", ".join(f"{revision} {n} checks" for revision, n in passed.items())
    )
    return 1 if wrong else 0


def findings(served: dict[str, Outcome], fixtures: dict[str, Outcome]) -> Iterator[str]:
    for revision in REVISIONS:
        for scenario in sorted(served[revision]):
            known = scenario in SERVED | WITH_FIXTURES or scenario in NOT_OURS
            if not known:
                yield f"{revision} {scenario}: is not listed in tests/conformance/scenarios.py"
            for where, outcome, asked in (("holdlog serve", served, SERVED), ("fixtures", fixtures, WITH_FIXTURES)):
                if scenario in asked and outcome[revision].get(scenario, (0, 1))[1]:
                    yield f"{revision} {scenario}: fails ({where})"
    for scenario in (SERVED | WITH_FIXTURES | NOT_OURS.keys()) - {it for found in served.values() for it in found}:
        yield f"{scenario}: is not in the suite any more"


def document(served: dict[str, Outcome], fixtures: dict[str, Outcome]) -> str:
    rows = []
    for scenario in sorted({it for outcome in served.values() for it in outcome}):
        cells = [_cell(scenario, served[revision], fixtures[revision]) for revision in REVISIONS]
        rows.append(f"| {scenario} | {' | '.join(cells)} |")
    reasons = [f"| {scenario} | {why} |" for scenario, why in sorted(NOT_OURS.items())]
    head = "| scenario | " + " | ".join(REVISIONS) + " |\n| --- |" + " --- |" * len(REVISIONS)
    intro = (Path(__file__).parent / "intro.md").read_text().replace("VERSION", PACKAGES[SUITE])
    reasons = ["", "## What does not apply", "", "| scenario | why |", "| --- | --- |", *reasons, ""]
    return "\n".join([intro, head, *rows, *reasons])


def _cell(scenario: str, served: Outcome, fixtures: Outcome) -> str:
    if scenario not in served:
        return ""
    said = []
    if scenario in SERVED:
        said.append(f"passes ({_checks(served[scenario])})")
    if scenario in WITH_FIXTURES:
        said.append(f"passes with fixtures ({_checks(fixtures[scenario])})")
    return ", ".join(said) or "does not apply"


def _checks(outcome: tuple[int, int]) -> str:
    return f"{outcome[0]} of {sum(outcome)} checks"


def run(suite: list[str], url: str, revision: str) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        command = [*suite, "server", "--url", url, "--requirements", revision, "-o", folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = {name: (int(passed), int(failed)) for _, name, passed, failed in _LINE.findall(done.stdout)}
    if not found:
        raise SystemExit(f"the suite reported nothing: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    return found


if __name__ == "__main__":
    sys.exit(main())
