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
    a commit or the index (`includes`), or moves HEAD or the index below them (`moves`). `kinds`: of which dirty files;
    see `status_arguments` and `concerns`. `folder`, `options`: where git runs, and the global options that select
    repository and worktree. `pathspecs`: what limits it, empty: the whole worktree. `names`: paths that the command
    itself names and changes, absolute, without patterns. `stash`: the entry that it takes away, such as `stash@{0}`,
    or `*` for all. `worktree`: the one that it removes or moves, absolute if the folder exists, else as given: git
    also takes the end of its path. `branch`: the one that it deletes. `narrower`: the command that does the same
    without others' files, with `{paths}` for the rest; empty if there is none. `tree`: a commit whose files it writes
    by force: untracked and ignored files that this commit contains are lost, too (`git ls-tree -r -z --name-only
    --full-tree TREE -- PATHS`). `shallow`: it leaves files in untracked folders alone.

    An action without kinds, names, stash, worktree and branch is one that nobody can know beforehand, such as
    `git add $FILES` or an unknown command: `is_unknown`. It is of the class *report*.
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
    tree: str = ""
    shallow: bool = False

    @property
    def is_unknown(self) -> bool:
        return not (self.kinds or self.names or self.stash or self.worktree or self.branch)


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


def status_arguments(action: GitAction) -> tuple[str, ...]:
    """The arguments of git, run in `action.folder`, that list the dirty files which the action may concern."""
    return ()


def parse_status(output: bytes) -> list[tuple[str, str]]:
    """Path, relative to the top of the worktree, and the two letters of each file in what `status_arguments` print."""
    return []


def concerns(action: GitAction, status: str) -> bool:
    """Whether a file with these two letters is among the kinds that the action concerns."""
    return False


def stash_entries(log: str) -> list[str]:
    """The commits of `stash@{0}`, `stash@{1}` …, from the text of `logs/refs/stash` in git's common folder."""
    return []


def parse_config(output: bytes) -> dict[str, str]:
    """What `git config --list -z` prints, by lower-case name; the last value counts."""
    return {}
