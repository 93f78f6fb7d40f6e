"""Measure what holdlog saves and costs several agents in one repository: python -m bench.benefit [--json]

Scripted agents do the same tasks in three set-ups, which alternate: in one folder; in one folder with the hooks of
`holdlog init`; in a worktree each, merged after each task. What was lost is read from the repository at the end.
"""

import argparse
import json
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.support.programs import HOLDLOG, environment

ROOT = Path(__file__).parents[1]
SET_UPS = ("one folder", "holdlog", "worktrees")
NAMES = ("ann", "bob", "cat", "dan", "eve", "fay", "gil", "hal")
THINKING = (0.3, 1.5)
"""Seconds between reading a file and changing it. A real agent takes some 20 times as long: see --pace."""
GLANCE = (0.05, 0.3)
"""Seconds before it acts on a message, or does again what it has thought about."""
CHECK = 0.3
"""Seconds that the tests of the repository take."""
WAYS = ("Edit", "Edit", "Edit", "Write", "shell")
"""How agents change files. Edit and Write fail if the file has changed since it was read; a shell writes regardless."""
COMMITS = ("git add {files} && git commit -qm {text}", "git add -A && git commit -qm {text}", "git commit -qam {text}")
HABITS = ("", "", "", "", "", "", "", "", "stash", "discard")
"""What an agent does after its first change: check the code without it, or throw it away and begin again."""
ATTEMPTS = 20
"""Of one step, before the agent gives up."""
FUNCTIONS = 20
"""Of a file at the beginning."""
MARK = re.compile(r"task \d+ part \d of \d by \w+")
"""What a change adds to a file, once."""
TESTS = r"""
import collections, pathlib, re, time
parts = collections.Counter()
for path in pathlib.Path("src").glob("*.py"):
    compile(text := path.read_text(), path, "exec")
    for task, total in set(re.findall(r"(task \d+) part \d of (\d)", text)):
        parts[task, int(total)] += len(set(re.findall(task + r" part \d", text)))
time.sleep(float(pathlib.Path("seconds").read_text()))
print(*(f"half-done: {task}" for (task, total), number in parts.items() if number < total), sep="\n")
"""
CHECK_COMMAND = f"{shlex.quote(sys.executable)} check.py"
ROWS = (
    *("changes", "changes missing from HEAD", "of these, uncommitted or stashed"),
    *("commits", "commits with others' changes", "changes made again", "edits refused by the host"),
    *("edits denied by holdlog", "git commands denied by holdlog", "git commands repeated", "merge conflicts"),
    *("checks over others' half-done work", "steps given up", "calls that hooks failed to guard"),
)
TIMES = ("minutes", "hooks per agent", "seconds in hooks per agent", "seconds of waiting for claims per agent")
Json = dict[str, Any]


class Size(NamedTuple):
    """Of a run. `pace`: how many times longer agents think and tests run. `is_careful`: agents have no bad habits."""

    seed: int
    agents: int
    tasks: int
    files: int
    pace: float = 1
    is_careful: bool = False


class Part(NamedTuple):
    """A function to add to a file, behind that with the number `place`."""

    path: str
    mark: str
    place: int
    way: str

    def apply(self, text: str) -> tuple[str, str]:
        """The lines to replace, as they are in the text, and what replaces them."""
        name = "_".join(re.findall(r"\d+", self.mark))
        function = f'def task_{name}():\n    return "{self.mark}"\n\n\n'
        anchor = re.search(rf"def part_{self.place}\(\):\n.*?\n\n\n(?=def |\Z)", text, re.DOTALL)
        old = anchor[0] if anchor else text
        return old, old + function


class Task(NamedTuple):
    number: int
    parts: tuple[Part, ...]
    commit: str
    habit: str


def plan(size: Size) -> dict[str, list[Task]]:
    """The tasks of each agent: two files each; one change in three is at a file's end."""
    chance = random.Random(size.seed)
    ways, commits, habits = (it[: 1 if size.is_careful else None] for it in (WAYS, COMMITS, HABITS))
    planned: dict[str, list[Task]] = {name: [] for name in NAMES[: size.agents]}
    for number in range(size.tasks):
        name = NAMES[number % size.agents]
        paths = [f"src/module_{it}.py" for it in chance.sample(range(size.files), 2)]
        marks = [f"task {number} part {part} of 2 by {name}" for part in (1, 2)]
        places = [FUNCTIONS - 1 if chance.random() < 1 / 3 else chance.randrange(FUNCTIONS) for _ in paths]
        parts = (Part(*it, chance.choice(ways)) for it in zip(paths, marks, places, strict=True))
        planned[name].append(Task(number, tuple(parts), chance.choice(commits), chance.choice(habits)))
    return planned


# --- an agent and its host


class Outcome(NamedTuple):
    """`problem`: "", "denied" by a hook, or "failed"; `text`: what the model reads."""

    problem: str
    text: str


class Host:
    """What Claude Code does with the calls of a model: its hooks, if the folder has any, and its checks of edits."""

    def __init__(self, folder: Path, name: str) -> None:
        settings = folder / ".claude/settings.local.json"
        self._hooks: Json = json.loads(settings.read_text())["hooks"] if settings.exists() else {}
        self._folder, self._facts = folder, {"session_id": name, "cwd": str(folder)}
        path = f"{Path(HOLDLOG).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = environment({"PATH": path, **_git_settings(name)})
        self._seen: dict[str, str] = {}
        self._calls = 0
        self.counts: dict[str, Any] = defaultdict(int)

    def hook(self, event: str, tool: str = "", **fields: Any) -> str:
        """Why the hooks deny a call; empty if they allow it."""
        call = {**self._facts, "hook_event_name": event, **({"tool_name": tool} if tool else {}), **fields}
        for group in self._hooks.get(event, ()):
            if tool and not re.fullmatch(group.get("matcher", ".*"), tool):
                continue
            for hook in group["hooks"]:
                began = time.monotonic()
                done = self._run(hook["command"], json.dumps(call))
                self.counts["hooks"] += 1
                self.counts["hook seconds"] += time.monotonic() - began
                self.counts["calls that hooks failed to guard"] += "not guarded" in done.stdout + done.stderr
                output = json.loads(done.stdout or "{}").get("hookSpecificOutput", {})
                if output.get("permissionDecision") == "deny":
                    return str(output["permissionDecisionReason"])
        return ""

    def read(self, path: str) -> str:
        text = self._seen[path] = (self._folder / path).read_text()
        self.hook("PostToolUse", "Read", tool_input={"file_path": str(self._folder / path)})
        return text

    def change(self, tool: str, path: str, old: str, new: str) -> Outcome:
        """Edit replaces a passage, Write the whole file. Both fail if the file has changed since it was read."""
        texts = {"old_string": old, "new_string": new} if tool == "Edit" else {"content": new}

        def write() -> Outcome:
            current = (self._folder / path).read_text()
            if current != self._seen[path] or current.count(old) != 1:
                return Outcome("failed", "File has been modified since read. Read it again before you change it.")
            self._seen[path] = current.replace(old, new)
            (self._folder / path).write_text(self._seen[path])
            return Outcome("", "")

        return self._call(tool, {"file_path": str(self._folder / path), **texts}, write)

    def shell(self, command: str) -> Outcome:
        def run() -> Outcome:
            done = self._run(command)
            return Outcome("failed" if done.returncode else "", done.stdout + done.stderr)

        return self._call("Bash", {"command": command}, run)

    def _call(self, tool: str, arguments: Json, run: Callable[[], Outcome]) -> Outcome:
        self._calls += 1
        call = {"tool_input": arguments, "tool_use_id": f"toolu_{self._calls}"}
        if reason := self.hook("PreToolUse", tool, **call):
            return Outcome("denied", reason)
        outcome = run()
        self.hook("PostToolUseFailure" if outcome.problem else "PostToolUse", tool, **call)
        return outcome

    def _run(self, command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", command],
            input=text, cwd=self._folder, env=self._environment, capture_output=True, text=True, check=False,
        )  # fmt: skip


class Agent:
    """Does its tasks. It merges each if the folder is a worktree of its own."""

    def __init__(self, name: str, folder: Path, size: Size) -> None:
        self._name, self._tasks, self._pace = name, plan(size)[name], size.pace
        self._has_worktree = folder.name == name
        self._host = Host(folder, name)
        self._counts = self._host.counts
        self._chance = random.Random(name)

    def work(self) -> dict[str, Any]:
        self._host.hook("SessionStart", source="startup")
        for task in self._tasks:
            self._chance.seed(f"{self._name} {task.number}")
            self._host.hook("UserPromptSubmit", prompt=f"Do task {task.number}.")
            self._do(task)
            self._host.hook("Stop")
        self._host.hook("SessionEnd", reason="other")
        return self._counts

    def _do(self, task: Task) -> None:
        missing: Sequence[Part] = task.parts
        for attempt in range(ATTEMPTS):
            self._change(missing)
            if attempt == 0:
                self._follow_habit(task)
            self._check(task)
            missing = [part for part in task.parts if part.mark not in self._host.read(part.path)]
            if not missing:
                break
            self._counts["changes made again"] += len(missing)
        self._commit(task)
        if self._has_worktree:
            self._merge()

    def _change(self, parts: Sequence[Part]) -> None:
        """Change each file. One that another agent holds comes after the others, and then waits."""
        if not parts:
            return
        part, others, thinking = parts[0], parts[1:], THINKING
        for _ in range(ATTEMPTS):
            outcome = self._apply(part, thinking)
            thinking = GLANCE
            if not outcome.problem:
                break
            if outcome.problem == "failed":
                self._counts["edits refused by the host"] += 1
                continue
            self._counts["edits denied by holdlog"] += 1
            if others:
                self._change(others)
                others = ()
            else:
                self._queue(outcome.text)
        else:
            self._counts["steps given up"] += 1
        self._change(others)

    def _apply(self, part: Part, thinking: tuple[float, float]) -> Outcome:
        text = self._host.read(part.path)
        if part.mark in text:
            return Outcome("", "")
        self._think(thinking)
        old, new = part.apply(text)
        whole = text.replace(old, new)
        if part.way != "shell":
            passage = (old, new) if part.way == "Edit" else (text, whole)
            return self._host.change(part.way, part.path, *passage)
        outcome = self._host.shell(f"cat > {part.path} <<'EOF'\n{whole}EOF")
        return outcome if outcome.problem == "denied" else Outcome("", outcome.text)

    def _queue(self, denial: str) -> None:
        """Run the command that the denial names. An agent in a deadlock commits its files and releases them."""
        command = re.search(r"run: (holdlog claim .+? --agent (\S+) --wait-seconds \d+)", denial)
        assert command, denial
        began = time.monotonic()
        outcome = self._host.shell(command[1])
        self._counts["waiting seconds"] += time.monotonic() - began
        if outcome.problem and "waits for" in outcome.text:
            self._host.shell("holdlog commit -m 'work in progress'")
            self._host.shell(f"holdlog release --agent {command[2]} --outcome modified")

    def _follow_habit(self, task: Task) -> None:
        path = task.parts[0].path
        if task.habit == "stash":
            self._git(f"git stash -q && {CHECK_COMMAND}; git stash pop -q")
        elif task.habit == "discard" and not self._git(f"git checkout -q -- {path}").problem:
            self._change(task.parts[:1])

    def _check(self, task: Task) -> None:
        outcome = self._host.shell(CHECK_COMMAND)
        others = {it for it in re.findall(r"half-done: task (\d+)", outcome.text) if int(it) != task.number}
        self._counts["checks over others' half-done work"] += bool(others or outcome.problem)

    def _commit(self, task: Task) -> None:
        text = shlex.quote(f"task {task.number}")
        command = task.commit.format(files=" ".join(part.path for part in task.parts), text=text)
        for _ in range(ATTEMPTS):
            outcome = self._git(command)
            if outcome.problem == "denied":
                command = f"holdlog commit -m {text}"  # as the denial says
            elif not outcome.problem or re.search(r"nothing (added )?to commit|no changes added", outcome.text):
                return
            elif "unmerged" in outcome.text:
                self._resolve()
            else:
                self._think(GLANCE)
        self._counts["steps given up"] += 1

    def _merge(self) -> None:
        """Merge the main branch into one's own, then move the main branch to the result."""
        for _ in range(ATTEMPTS):
            if self._host.shell("git merge -q --no-edit main").problem:
                self._resolve()
            if not self._host.shell("git push -q . HEAD:main").problem:
                return
            self._counts["git commands repeated"] += 1  # another agent has moved the main branch
            self._think(GLANCE)
        self._counts["steps given up"] += 1

    def _resolve(self) -> None:
        """Keep both sides of each conflict. An agent that cannot merge commits what is in its way."""
        paths = self._host.shell("git diff --name-only --diff-filter=U").text.split()
        self._counts["merge conflicts"] += len(paths)
        for path in paths:
            text = self._host.read(path)
            self._think(THINKING)
            both = re.sub(r"<{7} .*?\n(.*?)={7}\n(.*?)>{7} .*?\n", r"\1\2", text, flags=re.DOTALL)
            self._host.change("Write", path, text, both)
        self._host.shell("git add -A && git commit -q --no-edit -m 'merge main'")

    def _git(self, command: str) -> Outcome:
        outcome = self._host.shell(command)
        self._counts["git commands denied by holdlog"] += outcome.problem == "denied"
        self._counts["git commands repeated"] += "index.lock" in outcome.text
        return outcome

    def _think(self, seconds: tuple[float, float]) -> None:
        time.sleep(self._chance.uniform(*seconds) * self._pace)


def run_agent(name: str, folder: str, size: str) -> None:
    """One process, as each host is. Prints what the agent counted."""
    print(json.dumps(Agent(name, Path(folder), Size(*json.loads(size))).work()))


# --- a set-up, and what is in its repository at the end


def run_agents(set_up: str, size: Size, folder: Path) -> Json:
    """What one set-up counted, and the facts of its repository."""
    main, planned = make_repository(folder / "main", size), plan(size)
    if set_up == "holdlog":
        _run(main, HOLDLOG, "init", "--client", "claude-code", "--yes")
    folders = dict.fromkeys(planned, main)
    if set_up == "worktrees":
        _run(
            main, "git", "checkout", "-q", "--detach"
        )  # a push moves the main branch only if it is checked out nowhere
        for name in planned:
            folders[name] = folder / name
            _run(main, "git", "worktree", "add", "-q", "-b", name, str(folders[name]))
    began = time.monotonic()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.benefit", name, str(own), json.dumps(size)],
            stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment(),
        )
        for name, own in folders.items()
    ]  # fmt: skip
    outputs = [process.communicate()[0] for process in processes]
    minutes = (time.monotonic() - began) / 60
    if any(process.returncode for process in processes):
        raise RuntimeError(f"an agent failed: {set_up}")
    if set_up == "worktrees":
        _run(main, "git", "checkout", "-q", "main")
    totals = Counter[str]()
    for counts in map(json.loads, outputs):
        totals.update(counts)
    each = (totals.pop(it, 0) / size.agents for it in ("hooks", "hook seconds", "waiting seconds"))
    marks = [part.mark for tasks in planned.values() for task in tasks for part in task.parts]
    return {**read_facts(main, marks), **totals, **dict(zip(TIMES, (minutes, *each), strict=True))}


def make_repository(folder: Path, size: Size) -> Path:
    (folder / "src").mkdir(parents=True)
    (folder / "check.py").write_text(TESTS)
    (folder / "seconds").write_text(str(CHECK * size.pace))
    text = "".join(f"def part_{number}():\n    return {number}\n\n\n" for number in range(FUNCTIONS))
    for number in range(size.files):
        (folder / f"src/module_{number}.py").write_text(text)
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "first"]):
        _run(folder, "git", *words)
    return folder


def read_facts(main: Path, marks: Sequence[str]) -> Json:
    """What the repository shows of these changes."""
    lost = {*marks}.difference(MARK.findall(_run(main, "git", "archive", "HEAD", "src")))
    there = "".join(path.read_text() for path in (main / "src").iterdir()) + _run(main, "git", "stash", "list", "-p")
    log = _run(main, "git", "log", "--no-merges", "--format=%x00%an", "-p", "--unified=0", "HEAD", "--", "src")
    authors = [
        (entry.partition("\n")[0], set(re.findall(rf"(?m)^\+.*{MARK.pattern}", entry))) for entry in log.split("\0")[1:]
    ]
    return {
        "changes": len(marks),
        "changes missing from HEAD": len(lost),
        "of these, uncommitted or stashed": len(lost & {*MARK.findall(there)}),
        "commits": len(authors) - 1,
        "commits with others' changes": sum(
            any(not line.endswith(f" by {author}") for line in lines) for author, lines in authors
        ),
    }


def _run(folder: Path, *command: str) -> str:
    """What a command prints; it must succeed."""
    env = environment(_git_settings("lead"))
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


def _git_settings(name: str) -> dict[str, str]:
    """Nothing of the machine's own settings."""
    who = {f"GIT_{role}_{what}": name for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return who | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


# --- the table


def measure(rounds: int, size: Size) -> dict[str, list[Json]]:
    """The results of each set-up; each round has its own seed, and another order."""
    results: dict[str, list[Json]] = {set_up: [] for set_up in SET_UPS}
    for number in range(rounds):
        first = number % len(SET_UPS)
        for set_up in (*SET_UPS[first:], *SET_UPS[:first]):
            _show_progress(f"round {number + 1} of {rounds}: {set_up}")
            with TemporaryDirectory(prefix="holdlog-bench-", dir="/tmp") as folder:
                results[set_up].append(run_agents(set_up, size._replace(seed=size.seed + number), Path(folder)))
    _show_progress("")
    return results


def _show_progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def summarize(results: Sequence[Json]) -> Json:
    """Counts are sums of all rounds; times are medians of a round."""
    times = {row: statistics.median(it[row] for it in results) for row in TIMES}
    return {row: sum(it.get(row, 0) for it in results) for row in ROWS} | times


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.benefit", description=__doc__)
    parser.add_argument("--json", action="store_true", help="a JSON object per set-up, with the results of each round")
    for name, default, what in (
        ("rounds", 1, "each has a seed"),
        ("agents", 4, f"at most {len(NAMES)}"),
        ("tasks", 30, "of all agents together"),
        ("files", 10, "that the tasks share"),
        ("seed", 1, "of tasks, habits and thinking"),
        ("pace", 1.0, "agents think and tests run N times longer; 20: as real agents do"),
    ):
        help_line = f"{what} (default: {default:g})"
        parser.add_argument(f"--{name}", type=type(default), default=default, metavar="N", help=help_line)
    careful = "no stash, no checkout of files, no rewriting in a shell, git add of one's own files only"
    parser.add_argument("--careful", action="store_true", help=careful)
    options = parser.parse_args()
    size = Size(options.seed, options.agents, options.tasks, options.files, options.pace, options.careful)
    results = measure(options.rounds, size)
    summaries = {set_up: summarize(results[set_up]) for set_up in SET_UPS}
    if options.json:
        for set_up in SET_UPS:
            print(json.dumps({"set-up": set_up, **summaries[set_up], "rounds": results[set_up]}))
        return
    print(f"{options.agents} agents, {options.tasks} tasks, {options.files} files, {options.rounds} rounds\n")
    print(f"{'':<44}" + "".join(f"{set_up:>12}" for set_up in SET_UPS))
    for row in summaries[SET_UPS[0]]:
        print(f"{row:<44}" + "".join(f"{_format(summaries[it][row]):>12}" for it in SET_UPS))


def _format(number: float) -> str:
    return f"{number:,.2f}".rstrip("0").rstrip(".")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in NAMES:
        run_agent(*sys.argv[1:])
    else:
        main()
