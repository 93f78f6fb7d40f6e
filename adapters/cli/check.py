"""`holdlog check`: whether other sessions hold files, for git hooks and CI. Reads only; never creates a store."""

import getpass
import os
import shlex
import subprocess
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Final, NamedTuple

from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.cli.settings import find_place
from holdlog.adapters.cli.store import find_names, has_store
from holdlog.adapters.cli.texts import print_json, print_note, print_text
from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.conversations import find_conversation
from holdlog.adapters.engine.port import Reader
from holdlog.adapters.hooks.ownership import FileWork, Ownership
from holdlog.adapters.operating_system.files import format_duration
from holdlog.adapters.operating_system.location import find_top, mask_password
from holdlog.adapters.operating_system.processes import identify_host
from holdlog.adapters.operating_system.workspaces import Workspaces
from holdlog.adapters.policy.in_force import FILE, read_policy, read_uncommitted
from holdlog.domain.claims.holder import HolderId
from holdlog.domain.names import is_of_agent
from holdlog.domain.refusals import InvalidError, StoreError, UnavailableError

_EXAMPLES: Final = (
    "check --staged                        as a pre-commit hook: holdlog init --git-hook",
    "check src/a.py src/ --agent claude    exits with 1 if another session holds one of them",
    "check --staged --agent ci             in CI: blocks what any session holds",
)
_STAGED: Final = (
    *("diff", "--cached", "--name-only", "-z", "--no-renames"),  # without renames: both names of each
    *("--no-relative", "--no-ext-diff", "--ignore-submodules=dirty"),  # whatever the configuration says
)


class Problem(NamedTuple):
    """A file that others hold, or that only a person may change. `blocks`: an error, not only a warning."""

    path: str
    blocks: bool
    text: str
    held_by: str | None = None
    resource: str | None = None


class Committer(NamedTuple):
    """Who is about to change the files. `agent`: empty if unknown. `is_person`: --agent names the current user."""

    ownership: Ownership | None
    agent: str
    is_person: bool

    def owns(self, work: FileWork) -> bool:
        return self.agent != "" and is_of_agent(self.agent, work.who.agent)


def run(words: list[str]) -> int:
    """Returns 0 if no file blocks, 1 if one does. Raises InvalidError for bad arguments, or without a repository."""
    options = _build_parser().parse_args(words)
    if options.staged == bool(options.paths):
        raise InvalidError("PATH: name files, or use --staged for those of the next git commit, not both")
    paths = list_staged() if options.staged else {path: os.path.abspath(path) for path in options.paths}
    workspaces, warnings = find_names(options), _list_policy_warnings()
    problems = list[Problem]()
    place = find_place(options.db)
    try:
        if not has_store(place):
            raise StoreError(f"there is no store at {mask_password(place)}")
        with closing(open_engine(place, creates=False)) as engine:
            committer = _find_committer(engine.store, options)
            problems = [it for path in paths if (it := _check(path, paths[path], committer, workspaces, options))]
    except (StoreError, UnavailableError) as error:
        committer = Committer(None, options.agent or "", _is_user(options.agent))
        warnings.append(f"nothing was checked: {error}")
    problems += [it for path in paths if (it := _check_person(path, paths[path], committer)) is not None]
    _print_problems(problems, warnings, committer, options, len(paths))
    return 1 if any(it.blocks for it in problems) else 0


def list_staged() -> dict[str, str]:
    """The files that the next commit changes: absolute paths by the paths to show. git may use a temporary index, which
    it names in the environment. Raises InvalidError."""
    output = []
    for words in (("rev-parse", "--show-toplevel"), _STAGED):
        done = subprocess.run(["git", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            problem = (done.stderr.decode(errors="backslashreplace").splitlines() or ["failed"])[0]
            raise InvalidError(f"git: {problem}; run this in a git repository, or name the files: holdlog check PATH")
        output.append(done.stdout)
    top, names = os.fsdecode(output[0].removesuffix(b"\n")), filter(None, output[1].split(b"\0"))
    return {name.decode(errors="backslashreplace"): os.path.join(top, os.fsdecode(name)) for name in names}


def _build_parser() -> Parser:
    parser = Parser("check", "Check whether other sessions hold files. Changes nothing.", _EXAMPLES)
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a file, or a folder with / at its end")
    parser.add_argument("--staged", action="store_true", help="check what the next git commit changes")
    agent = os.environ.get("HOLDLOG_AGENT") or None
    parser.add_argument("--agent", "--by", metavar="NAME", default=agent, help="who changes the files")
    return parser


def _find_committer(reader: Reader, options: Namespace) -> Committer:
    conversation = find_conversation(reader, identify_host())
    session = "" if conversation is None else conversation.session
    agent = options.agent or ("" if conversation is None else conversation.name)
    ownership = Ownership(reader, HolderId(agent, session), identify_host())
    return Committer(ownership, agent, conversation is None and _is_user(options.agent))


def _is_user(agent: str | None) -> bool:
    with suppress(OSError, KeyError):
        return agent is not None and agent == getpass.getuser()
    return False


def _check(
    path: str, absolute: str, committer: Committer, workspaces: Workspaces, options: Namespace
) -> Problem | None:
    """The problem if others hold a file in this worktree, or (a warning) in another one."""
    is_folder = path.endswith("/") or (os.path.isdir(absolute) and not options.staged)  # git stages a submodule's name
    resource = path if path.startswith("custom://") else workspaces.name_file(absolute + "/" * is_folder)
    if resource is None or committer.ownership is None:
        return None
    elsewhere = {name: place for place, name in workspaces.list_elsewhere(resource)}
    names = dict.fromkeys((resource, resource.rstrip("/"), *elsewhere))
    for name, works in committer.ownership.find_others([*names]).items():
        for work in works:
            if work.holds and not committer.owns(work):
                return _describe(path, work, elsewhere.get(name), committer, options)
    return None


def _describe(path: str, work: FileWork, elsewhere: str | None, committer: Committer, options: Namespace) -> Problem:
    agent, shown = work.who.agent, shlex.quote(path)
    text = f"{path}: held by {agent} for {format_duration(work.seconds)}"
    mode = "" if "://" in path else _find_mode(os.path.abspath(path))
    why_not = {
        f", in workspace {elsewhere}; coordinate before you merge": elsewhere is not None,
        f", and {FILE} only warns": mode == "warn",
        "": committer.agent == "",
        ", a sub-agent of yours": agent.startswith(f"{committer.agent}/") and committer.agent != "",
        ", in a session that has ended": not work.is_live,
    }
    if (reason := next((reason for reason, holds in why_not.items() if holds), None)) is not None:
        return Problem(path, False, f"warning: {text}{reason}", agent, work.resource)
    by = f" --agent {shlex.quote(options.agent)}" if options.agent else ""
    leave_out = f", or leave it out: git restore --staged {shown}" if options.staged else ""
    text += f"; queue for it: holdlog claim {shown}{by} --wait 50{leave_out}"
    return Problem(path, True, text, agent, work.resource)


def _check_person(path: str, absolute: str, committer: Committer) -> Problem | None:
    """The problem if only a person may change a file, and an agent, or an unknown user, is about to."""
    if "://" in path or committer.is_person or _find_mode(absolute) != "human":
        return None
    blocks = committer.agent != ""
    advice = "describe the change that you need to your user" if blocks else "if you are a person, continue"
    return Problem(
        path, blocks, f"{'' if blocks else 'warning: '}{path}: only a person may change it ({FILE}); {advice}"
    )


def _find_mode(absolute: str) -> str:
    """The mode of a path; empty outside of a worktree."""
    real = os.path.realpath(absolute)
    root = find_top(os.path.dirname(real))
    return "" if root is None else read_policy(root).find_rule(os.path.relpath(real, root)).mode


def _list_policy_warnings() -> list[str]:
    root = find_top(os.getcwd())
    if root is None:
        return []
    problem, edited = read_policy(root).problem, read_uncommitted(root)
    warnings = [f"{problem}; the defaults apply"] if problem else []
    return warnings + ([f"{edited.problem}; fix it before you commit it"] if edited and edited.problem else [])


def _print_problems(
    problems: Sequence[Problem], warnings: Sequence[str], committer: Committer, options: Namespace, count: int
) -> None:
    """Print what was found. Problems go to standard error: git shows that of a hook."""
    if options.json:
        is_held = any(it.blocks for it in problems)
        status = "held" if is_held else "ok" if committer.ownership is not None else "not_checked"
        files = [it._asdict() for it in problems]
        print_json({"status": status, "checked": count, "files": files, "warnings": list(warnings)})
        return
    for line in (*(f"warning: {it}" for it in warnings), *(it.text for it in problems)):
        print_note(line)
    if problems and not committer.agent and not any(it.blocks for it in problems):
        print_note("nothing was blocked, because it is not known who you are: set HOLDLOG_AGENT, or pass --agent NAME")
    if not (options.staged or problems or warnings):
        print_text(f"ok: no other session holds {'this' if count == 1 else f'any of these {count}'}")
