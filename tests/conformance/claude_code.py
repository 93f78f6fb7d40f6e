"""The real Claude Code as `holdlog init` sets it up, and with a model that plays a script: whether hooks guard files
there.

    python -m tests.conformance.claude_code     make claude

Exit code 1 if something is not as the documentation says. Needs no account: the model is in this process.
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.conformance.coding_hosts import AGENT, COMMANDS, holdlog, problems, report, repository, run
from tests.conformance.node import PACKAGES, node
from tests.conformance.scripted_model import Step, scripted_model

CLAUDE: Final = "@anthropic-ai/claude-code"
TOOLS: Final = "mcp__holdlog__holdlog_"
"""How names of our tools begin in Claude Code."""
QUIET: Final = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"}


def main() -> int:
    claude = node(CLAUDE, "cli-wrapper.cjs")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project = repository(folder)
        holdlog(project, "init", "--client", "claude-code", "--yes")
        options = ["--mcp-config", str(project / ".mcp.json"), "--permission-mode", "acceptEdits"]
        tools = ["--allowedTools", f"{TOOLS}*", "Read", "Edit", "Write", "Bash(git *)"]
        command = [*claude, "-p", "Change the files.", *options, *tools]
        with scripted_model(script(project)) as (url, conversation):
            printed = run(command, project, QUIET | {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "scripted"})
        wrong = list(problems(project, conversation, free=[0, 4], held=[2], git=5))
    return report(f"Claude Code {PACKAGES[CLAUDE]} with hooks and server", wrong, printed)


def script(project: Path) -> list[Step]:
    new, held = str(project / "new.py"), str(project / "held.py")
    return [
        ("Write", {"file_path": new, "content": "a = 1\n"}),
        ("Read", {"file_path": held}),
        ("Edit", {"file_path": held, "old_string": "x = 1", "new_string": "x = 2"}),
        (f"{TOOLS}claim", {"resource": "custom://merge", "agent": AGENT}),
        ("Edit", {"file_path": new, "old_string": "a = 1", "new_string": "a = 2"}),
        *(("Bash", {"command": command, "description": "Use git"}) for command in COMMANDS),
        (f"{TOOLS}status", {}),
    ]


if __name__ == "__main__":
    sys.exit(main())
