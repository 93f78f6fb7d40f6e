"""The real OpenCode with the plugin that `holdlog init` writes, and with a model that plays a script.

    python -m tests.conformance.opencode     make opencode

Exit code 1 if something is not as the documentation says. Needs no account: the model is in this process.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.conformance.coding_hosts import AGENT, ALLOWED, DENIED, holdlog, problems, report, repository, run
from tests.conformance.node import FOLDER, PACKAGES, node
from tests.conformance.scripted_model import Step, scripted_model

OPENCODE: Final = "opencode-ai"
MODEL: Final = "anthropic/claude-sonnet-4-5"
TOOLS: Final = "holdlog_holdlog_"
"""How names of our tools begin in OpenCode."""


def main() -> int:
    node(OPENCODE, "opencode")
    programs = FOLDER.glob("opencode-ai/node_modules/opencode-*-*/bin/opencode*")
    program = min(map(str, programs), key=len)  # the others are for older processors
    with tempfile.TemporaryDirectory() as name:
        project = repository(Path(name))
        holdlog(project, "init", "--client", "opencode", "--yes")
        with scripted_model(script(project)) as (url, conversation):
            configure(project / "opencode.json", url)
            printed = run([program, "run", "--model", MODEL, "Change the files."], project, {})
        wrong = [*problems(project, conversation, free=[0, 5], held=[2, 3], git=6), *observed(project)]
    return report(f"OpenCode {PACKAGES[OPENCODE]} with the plugin", wrong, printed)


def configure(path: Path, url: str) -> None:
    """Add the model to the configuration that init has written."""
    given = json.loads(path.read_text())
    given["provider"] = {"anthropic": {"options": {"baseURL": f"{url}/v1", "apiKey": "scripted"}}}
    given["permission"] = "allow"
    path.write_text(json.dumps(given))


def script(project: Path) -> list[Step]:
    new, held = str(project / "new.py"), str(project / "held.py")
    return [
        ("write", {"filePath": new, "content": "a = 1\n"}),
        ("read", {"filePath": held}),
        ("edit", {"filePath": held, "oldString": "x = 1", "newString": "x = 2"}),
        ("bash", {"command": "mv held.py moved.py", "description": "Rename the file"}),
        (f"{TOOLS}claim", {"resource": "custom://merge", "agent": AGENT}),
        ("edit", {"filePath": new, "oldString": "a = 1", "newString": "a = 2"}),
        *(("bash", {"command": command, "description": "Use git"}) for command in (*DENIED, *ALLOWED)),
        (f"{TOOLS}status", {}),
    ]


def observed(project: Path) -> Iterator[str]:
    """What is wrong with what `holdlog doctor` has seen of the host."""
    text = holdlog(project, "doctor", "--client", "opencode")
    if " guarded: opencode" not in text:
        found = next((line for line in text.splitlines() if " guard " in line), text)
        yield f"holdlog doctor does not say that OpenCode was seen to obey a denial: {found}"


if __name__ == "__main__":
    sys.exit(main())
