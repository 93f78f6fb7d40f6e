"""What the checks of real hosts share: a repository in which somebody else holds a file, and what must hold after."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.conformance.scripted_model import Conversation

AGENT: Final = "claude-7f3a"
"""The name that the agent passes to our tools."""
SECONDS: Final = 180
DENIED: Final = ("git stash", "git add -A && git commit -m x")
"""Commands that would take the uncommitted work of `rival` away, or in."""
ALLOWED: Final = ("git status", "git add new.py && git commit --only -m new -- new.py")
COMMANDS: Final = (*DENIED, *ALLOWED)


def repository(folder: Path) -> Path:
    """A repository in which `rival` holds held.py and has changed it, next to an empty home."""
    project = folder / "project"
    (folder / "home").mkdir()
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    (project / "held.py").write_text("x = 0\n")
    for words in ("config user.name a", "config user.email a@example.org", "add .", "commit --quiet -m first"):
        subprocess.run(["git", *words.split()], cwd=project, check=True)
    (project / "held.py").write_text("x = 1\n")
    holdlog(project, "claim", "held.py", "--agent", "rival", "--lease", "900")
    return project


def holdlog(project: Path, *words: str) -> str:
    """The output of our command line."""
    command = [sys.executable, "-m", "holdlog", *words]
    done = subprocess.run(command, cwd=project, env=_environment(project), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def run(command: Sequence[str], project: Path, variables: Mapping[str, str]) -> str:
    """Run a host, and return what it prints. Our command line is on its PATH."""
    env, nothing = _environment(project) | dict(variables), subprocess.DEVNULL
    done = subprocess.run(
        command, cwd=project, env=env, stdin=nothing, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return done.stdout + done.stderr


def _environment(project: Path) -> dict[str, str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return {"HOME": str(project.parent / "home"), "PATH": path}


def problems(
    project: Path,
    conversation: Conversation,
    free: Sequence[int],
    held: Sequence[int],
    git: int,
) -> Iterator[str]:
    """What is not as it should be. `free`, `held`: the steps that edit a free file, and those that change the held one;
    `git`: the first step of `DENIED`, before those of `ALLOWED`. The last step is `status`."""
    results = conversation.results
    if "hooks claim the files that you edit" not in conversation.context:
        yield "the start of the session adds nothing to the context"
    if len(results) != conversation.length:
        yield f"{len(results)} of {conversation.length} steps were played: {results}"
        return
    for step in free:
        if results[step][1]:
            yield f"an edit of a free file is denied: {results[step][0]}"
    for step in held:
        if not results[step][1] or "held.py is held by rival" not in results[step][0]:
            yield f"a change of a held file is not denied: {results[step][0]}"
    for step, command in enumerate(COMMANDS, git):
        text, is_error = results[step]
        if command in DENIED and (not is_error or "held.py (rival" not in text):
            yield f"{command} is not denied: {text}"
        if command in ALLOWED and is_error:
            yield f"{command} is denied: {text}"
    log = subprocess.run(["git", "log", "--format=", "--name-only"], cwd=project, capture_output=True, text=True)
    if log.stdout.split() != ["new.py", "held.py"]:
        yield f"the commits have other files than allowed: {log.stdout.split()}"
    if not (project / "held.py").is_file() or (project / "held.py").read_text() != "x = 1\n":
        yield "a denied call changed the file"
    holders = {it["resource"]: it["held_by"] for it in json.loads(results[-1][0])["claims"]}
    if holders != {"held.py": "rival", "new.py": AGENT, "custom://merge": AGENT}:
        yield f"hooks and tools of one agent have other holders: {holders}"
    if AGENT not in holdlog(project, "blame", "new.py"):
        yield "holdlog blame does not name the agent that changed a file"


def report(host: str, wrong: Sequence[str], printed: str) -> int:
    """Print what is wrong, and return the exit code."""
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        print(printed, file=sys.stderr)
    print(f"{'FAILED' if wrong else 'passed'}: {host}")
    return 1 if wrong else 0
