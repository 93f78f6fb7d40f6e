"""The real Claude Code with our plugin, and with a model that plays a script: whether hooks guard files there.

    python -m tests.conformance.claude_code     make claude

Exit code 1 if something is not as the documentation says. Needs no account: the model is in this process.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deploy.packages.__main__ import build
from tests.conformance.node import PACKAGES, node
from tests.conformance.scripted_model import Conversation, Step, scripted_model

CLAUDE: Final = "@anthropic-ai/claude-code"
AGENT: Final = "claude-7f3a"
TOOLS: Final = "mcp__plugin_holdlog_holdlog__holdlog_"
"""How names of tools of a plugin's server begin in Claude Code."""
QUIET: Final = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"}


def main() -> int:
    claude = node(CLAUDE, "cli-wrapper.cjs")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project = prepare(folder)
        with scripted_model(script(project)) as (url, conversation):
            printed = run(claude, folder, url)
        wrong = list(findings(project, conversation))
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        print(printed, file=sys.stderr)
    print(f"{'FAILED' if wrong else 'passed'}: Claude Code {PACKAGES[CLAUDE]} with the plugin")
    return 1 if wrong else 0


def prepare(folder: Path) -> Path:
    """The plugin, and a repository in which somebody else holds a file."""
    build(folder / "packages")
    project = folder / "project"
    (folder / "home").mkdir()
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    (project / "held.py").write_text("x = 1\n")
    holdlog(project, "claim", "held.py", "--agent", "rival", "--lease", "900")
    return project


def script(project: Path) -> list[Step]:
    new, held = str(project / "new.py"), str(project / "held.py")
    return [
        ("Write", {"file_path": new, "content": "a = 1\n"}),
        ("Read", {"file_path": held}),
        ("Edit", {"file_path": held, "old_string": "x = 1", "new_string": "x = 2"}),
        (f"{TOOLS}claim", {"resource": "custom://merge", "agent": AGENT}),
        ("Edit", {"file_path": new, "old_string": "a = 1", "new_string": "a = 2"}),
        (f"{TOOLS}status", {}),
    ]


def run(claude: list[str], folder: Path, url: str) -> str:
    options = ["--plugin-dir", str(folder / "packages/claude-code"), "--permission-mode", "acceptEdits"]
    command = [*claude, "-p", "Change the files.", *options, "--allowedTools", f"{TOOLS}*", "Read", "Edit", "Write"]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    env = {"HOME": str(folder / "home"), "PATH": path, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "scripted"}
    done = subprocess.run(
        command,
        cwd=folder / "project",
        env=env | QUIET,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.stdout + done.stderr


def findings(project: Path, conversation: Conversation) -> Iterator[str]:
    """What is not as docs/hosts.md says."""
    if "edits claim files by themselves" not in conversation.context:
        yield "the start of the session adds nothing to the context"
    if len(conversation.results) != 6:
        yield f"{len(conversation.results)} of 6 steps were played"
        return
    wrote, _, edited, claimed, again, status = conversation.results
    if wrote[1] or again[1]:
        yield f"an edit of a free file is denied: {wrote} {again}"
    if not edited[1] or "held.py is held by rival" not in edited[0]:
        yield f"an edit of a held file is not denied: {edited[0]}"
    if (project / "held.py").read_text() != "x = 1\n":
        yield "a denied edit changed the file"
    if claimed[1] or "claimed" not in claimed[0]:
        yield f"the tool does not claim: {claimed[0]}"
    holders = {it["resource"]: it["held_by"] for it in json.loads(status[0])["claims"]}
    if holders != {"held.py": "rival", "new.py": AGENT, "custom://merge": AGENT}:
        yield f"hooks and tools of one agent have other holders: {holders}"


def holdlog(project: Path, *words: str) -> str:
    command = [sys.executable, "-m", "holdlog", *words]
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDLOG_")}
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
