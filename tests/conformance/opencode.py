"""The real OpenCode 1 as `holdlog init` sets it up, and with a model that plays a script: whether the plugin guards
files there.

    python -m tests.conformance.opencode     make opencode

Exit code 1 if something is not as the documentation says. Needs no account: the model is in this process.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.conformance.coding_hosts import AGENT, COMMANDS, holdlog, problems, report, repository, run
from tests.conformance.node import FOLDER, PACKAGES, node
from tests.conformance.scripted_model import Step, scripted_model

OPENCODE: Final = "opencode-ai"
MODEL: Final = "anthropic/claude-sonnet-4-5"
TOOLS: Final = "holdlog_holdlog_"
"""How names of our tools begin in OpenCode."""
NATIVE: Final = 1_000_000
"""Bytes. The program itself is larger than the scripts that start it."""


def main() -> int:
    node(OPENCODE, OPENCODE)
    with tempfile.TemporaryDirectory() as folder:
        project = repository(Path(folder))
        holdlog(project, "init", "--client", "opencode", "--yes")
        with scripted_model(script(project)) as (url, conversation):
            configure(project / "opencode.json", url)
            printed = run([find_program(), "run", "--model", MODEL, "Change the files."], project, {})
        wrong = list(problems(project, conversation, free=[0, 6], held=[2, 3, 4], git=7))
    return report(f"OpenCode {PACKAGES[OPENCODE]} with plugin and server", wrong, printed)


def find_program() -> str:
    """The program for this machine; the others are for older processors."""
    found = (FOLDER / OPENCODE / "node_modules").glob("**/bin/opencode*")
    return min((str(path) for path in found if path.stat().st_size > NATIVE), key=len)


def configure(path: Path, url: str) -> None:
    """Add the model to the configuration that init has written."""
    content = json.loads(path.read_text())
    content["provider"] = {"anthropic": {"options": {"baseURL": f"{url}/v1", "apiKey": "scripted"}}}
    content["permission"] = "allow"
    path.write_text(json.dumps(content))


def script(project: Path) -> list[Step]:
    new, held = str(project / "new.py"), str(project / "held.py")
    return [
        ("write", {"filePath": new, "content": "a = 1\n"}),
        ("read", {"filePath": held}),
        ("edit", {"filePath": held, "oldString": "x = 1", "newString": "x = 2"}),
        ("bash", {"command": "mv held.py moved.py", "description": "Rename the file"}),
        ("bash", {"command": "rm ../held.py", "workdir": str(project / ".git"), "description": "Remove the file"}),
        (f"{TOOLS}claim", {"resource": "custom://merge", "agent": AGENT}),
        ("edit", {"filePath": new, "oldString": "a = 1", "newString": "a = 2"}),
        *(("bash", {"command": command, "description": "Use git"}) for command in COMMANDS),
        (f"{TOOLS}status", {}),
    ]


if __name__ == "__main__":
    sys.exit(main())
