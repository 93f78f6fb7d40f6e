"""The real OpenCode, of both major versions, with the plugin that `holdlog init` writes, and with a model that plays a
script. OpenCode 2 is skipped, with a line that says so, where npm does not have its package.

    python -m tests.conformance.opencode     make opencode

Exit code 1 if something is not as the documentation says. Needs no account: the model is in this process.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.conformance.coding_hosts import AGENT, holdlog, problems, report, repository, run
from tests.conformance.node import FOLDER, PACKAGES, node
from tests.conformance.scripted_model import Step, scripted_model

PROGRAMS: Final = {1: "opencode-ai", 2: "@opencode/cli"}
"""The package of each major version."""
MODEL: Final = "anthropic/claude-sonnet-4-5"
TOOLS: Final = "holdlog_holdlog_"
"""How names of our tools begin in OpenCode 1; OpenCode 2 calls them from a program."""
NATIVE: Final = 1_000_000
"""Bytes. The program itself is larger than the scripts that start it."""


def main() -> int:
    return max(check(1), check(2))


def check(major: int) -> int:
    """Run a major version. Returns the exit code: 0, too, if npm does not have the package, which is printed."""
    package = PROGRAMS[major]
    name = f"OpenCode {PACKAGES[package]} with the plugin"
    try:
        node(package, package)
    except (SystemExit, KeyError) as error:
        if major == 1:
            raise
        print(f"NOT RUN: {name}: {error}")
        return 0
    has_tools = major == 1
    with tempfile.TemporaryDirectory() as folder:
        project = repository(Path(folder))
        holdlog(project, "init", "--client", "opencode", "--yes")
        with scripted_model(SCRIPTS[major](project)) as (url, conversation):
            configure(project / "opencode.json", url)
            command = [native(package), "run", "--model", MODEL, "Change the files."]
            printed = run(command, project, {})
        last_edit = conversation.length - (2 if has_tools else 1)
        wrong = [*problems(project, conversation, [0, last_edit], [2, 3, 4], has_tools), *observed(project)]
    return report(name, wrong, printed)


def native(package: str) -> str:
    """The program of a package for this machine; the others are for older processors."""
    folder = FOLDER / package.rpartition("/")[2] / "node_modules"
    found = [path for path in folder.glob("**/bin/opencode*") if path.stat().st_size > NATIVE]
    return min(map(str, found), key=len)


def configure(path: Path, url: str) -> None:
    """Add the model to the configuration that init has written."""
    given = json.loads(path.read_text())
    given["provider"] = {"anthropic": {"options": {"baseURL": f"{url}/v1", "apiKey": "scripted"}}}
    given["permission"] = "allow"
    path.write_text(json.dumps(given))


def script_1(project: Path) -> list[Step]:
    new, held = str(project / "new.py"), str(project / "held.py")
    return [
        ("write", {"filePath": new, "content": "a = 1\n"}),
        ("read", {"filePath": held}),
        ("edit", {"filePath": held, "oldString": "x = 1", "newString": "x = 2"}),
        ("bash", {"command": "mv held.py moved.py", "description": "Rename the file"}),
        ("bash", {"command": "rm ../held.py", "workdir": str(project / ".git"), "description": "Remove the file"}),
        (f"{TOOLS}claim", {"resource": "custom://merge", "agent": AGENT}),
        ("edit", {"filePath": new, "oldString": "a = 1", "newString": "a = 2"}),
        (f"{TOOLS}status", {}),
    ]


def script_2(project: Path) -> list[Step]:
    new, held = str(project / "new.py"), str(project / "held.py")
    return [
        ("write", {"path": new, "content": "a = 1\n"}),
        ("read", {"path": held}),
        ("edit", {"path": held, "oldString": "x = 1", "newString": "x = 2"}),
        ("shell", {"command": "mv held.py moved.py"}),
        ("shell", {"command": "rm ../held.py", "workdir": str(project / ".git")}),
        ("edit", {"path": new, "oldString": "a = 1", "newString": "a = 2"}),
    ]


SCRIPTS: Final = {1: script_1, 2: script_2}


def observed(project: Path) -> Iterator[str]:
    """What is wrong with what `holdlog doctor` has seen of the host."""
    text = holdlog(project, "doctor", "--client", "opencode")
    if " guarded: opencode" not in text:
        found = next((line for line in text.splitlines() if " guard " in line), text)
        yield f"holdlog doctor does not say that OpenCode was seen to obey a denial: {found}"


if __name__ == "__main__":
    sys.exit(main())
