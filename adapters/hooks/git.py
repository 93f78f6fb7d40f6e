"""What a git command does to uncommitted work, and whether that is the work of another session.

Pure, standard library only: functions over the words of a command, a list of dirty files and whose they are.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple


class GitCommand(NamedTuple):
    """A git command in a shell call. `words`: after `git`; None: a word that only a shell knows. `folder`: where it
    runs, absolute."""

    words: tuple[str | None, ...]
    folder: str


class GitAction(NamedTuple):
    """What one git command does.

    `name`: as people call it, such as `git reset --hard`. `effect`: it takes changes away (`discards`), takes them into
    a commit or the index (`includes`), or moves HEAD below them (`moves`). `kinds`: of which dirty files. `folder`,
    `options`: where git runs, and the global options that select repository and worktree. `pathspecs`: what limits it,
    empty: the whole worktree. `names`: paths that the command itself names and changes, as given. `stash`: the entry
    that it takes away, such as `stash@{0}`, or `*` for all. `worktree`: the one that it removes. `branch`: the one
    that it deletes. `narrower`: the command that does the same without others' files, with `{paths}` for the rest;
    empty if there is none.
    """

    name: str
    effect: Literal["discards", "includes", "moves"]
    kinds: frozenset[Literal["staged", "changed", "untracked", "ignored"]]
    folder: str
    options: tuple[str, ...] = ()
    pathspecs: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    stash: str = ""
    worktree: str = ""
    branch: str = ""
    narrower: str = ""


class OthersWork(NamedTuple):
    """A dirty file with the session that holds it or changed it last, which is not the caller's party. `path`: as the
    agent knows it. `status`: the two letters of `git status --porcelain`. `agent`: its name. `seconds`: since when.
    `is_live`: whether that session still works."""

    path: str
    status: str
    agent: str
    seconds: float
    is_live: bool


class Judgement(NamedTuple):
    """What the agent is shown. `denies`: the command must not run."""

    denies: bool
    text: str


def read_git(command: GitCommand, config: Mapping[str, str]) -> tuple[GitAction, ...]:
    """What a git command does; empty if it neither takes anything away nor takes it in, such as `git status` or a dry
    run. `config`: of the repository, such as `rebase.autostash` and `alias.co`."""
    return ()


def judge(action: GitAction, works: Sequence[OthersWork], own: Sequence[str]) -> Judgement | None:
    """What the agent is shown about a command over the works of other sessions; None: it runs, silently. `own`: the
    dirty files that remain for it, as the agent knows them."""
    return None
