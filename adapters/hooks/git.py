"""What a git command does to uncommitted work, and whether that is the work of another session.

Pure, standard library only: functions over the words of a command, a list of dirty files and whose they are. Only
whether a word is a path is looked up below the folder of the command. docs/git.md has the table of commands.
"""

import os
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from holdlog.adapters.hooks.tools import GitCommand
from holdlog.adapters.operating_system.location import find_top

Effect = Literal["discards", "includes", "moves"]
Kind = Literal["staged", "changed", "untracked", "ignored"]

MAX_ALIASES: Final = 10  # aliases of aliases that are followed

_KINDS: Final[dict[str, Kind]] = {"s": "staged", "c": "changed", "u": "untracked", "i": "ignored"}
_HEADS: Final = ("", "HEAD", "@")
_RECURSING: Final = ("checkout", "reset", "restore", "switch")
_FALSE: Final = ("false", "no", "off", "0")
_PATTERN: Final = frozenset("*?[\\")
_EXCLUDING: Final = (":!", ":^", ":(exclude")
_VALUED: Final = ("--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source")
"""Global options with a value that may be the next word."""
_SELECTING: Final = ("--bare", "--literal-pathspecs", "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs")
_PATHS: Final = " pathspec-from-file="
_BRANCHES: Final = " f/force m/merge conflict= d/detach t/track? orphan= recurse-submodules? overwrite-ignore theirs"
_OPTIONS: Final = {
    "add": "A/all u/update n/dry-run p/patch i/interactive e/edit f/force renormalize refresh chmod=" + _PATHS,
    "checkout": "b= B= p/patch 2/ours 3/theirs" + _BRANCHES + _PATHS,
    "clean": "n/dry-run f/force i/interactive e/exclude=",
    "commit": "m/message= F/file= C/reuse-message= c/reedit-message= fixup= squash= author= date= t/template= cleanup="
    " a/all i/include o/only p/patch interactive amend dry-run short porcelain long z/null trailer= S/gpg-sign?"
    " u/untracked-files?" + _PATHS,
    "mv": "n/dry-run f/force",
    "pull": "r/rebase? autostash dry-run",
    "rebase": "abort skip quit continue autostash edit-todo show-current-patch x/exec= s/strategy= X/strategy-option=",
    "reset": "hard merge keep soft mixed p/patch recurse-submodules?" + _PATHS,
    "restore": "s/source= S/staged W/worktree p/patch conflict=" + _PATHS,
    "rm": "n/dry-run f/force cached" + _PATHS,
    "stash": "p/patch S/staged k/keep-index u/include-untracked a/all m/message= q/quiet index" + _PATHS,
    "switch": "c/create= C/force-create= discard-changes" + _BRANCHES,
}
"""The options that matter, and all that have a value (`=`, or `?`: only if attached), as short/long."""
_OTHER_OPTIONS: Final = "abort skip quit continue r/resolved autostash edit-todo show-current-patch output="
_READS: Final = """
apply blame branch cat-file check-ignore clone commit-tree config describe diff diff-index difftool fetch for-each-ref
format-patch fsck gc grep help init log ls-files ls-remote ls-tree maintenance merge-base merge-tree name-rev notes
prune push range-diff remote repack rerere rev-list rev-parse shortlog show show-branch show-ref status tag var
version write-tree
"""
"""Commands that leave worktree and index alone, but for `--output`. The shell part reads `apply`."""
_READING: Final = ("", "add", "exists", "list", "lock", "log", "prune", "show", "status", "summary", "unlock", "view")
"""What bisect, reflog, submodule and worktree do without harm, by their first word."""


class GitAction(NamedTuple):
    """What one git command does.

    `name`: as people call it, such as `git reset --hard`. `effect`: it takes changes away (`discards`), takes them into
    a commit or the index (`includes`), or moves HEAD or the index below them (`moves`). `kinds`: of which dirty files:
    `concerns` selects them among those that git lists for `pathspecs`. `folder`, `options`: where git runs, and the
    global options that select repository and worktree. `pathspecs`: what limits it, empty: the whole worktree. `names`:
    paths that the command itself names and changes, absolute, without patterns. `stash`: the entry that it takes away,
    such as `stash@{0}`, or `*` for all. `worktree`: the one that it removes or moves, or a folder with some in it,
    absolute if it exists, else as given: git also takes the end of its path. `tree`: a commit whose files it writes by
    force: of the files in its limits, those that this commit contains are lost, too, if they are untracked or ignored.
    `shallow`: it leaves files in untracked folders alone.

    An action without kinds, names, stash and worktree is one that nobody can know beforehand, such as `git add $FILES`,
    an unknown command, or what a command does to the repositories inside: `is_unknown`. It is of the class *report*.
    """

    name: str
    effect: Effect
    kinds: frozenset[Kind]
    folder: str
    options: tuple[str, ...] = ()
    pathspecs: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    stash: str = ""
    worktree: str = ""
    tree: str = ""
    shallow: bool = False

    @property
    def is_unknown(self) -> bool:
        return not (self.kinds or self.names or self.stash or self.worktree)


def read_git(command: GitCommand, find_setting: Callable[[str], str]) -> tuple[GitAction, ...]:
    """What a git command does; empty if it neither takes anything away nor takes it in, such as `git status` or a dry
    run. `find_setting`: of the repository, by lower-case name, such as `rebase.autostash`; empty if it is not set.

    Words that only a shell knows do not make a denial: what the others leave certain is returned, with one action that
    `is_unknown`. A word that may be a branch or a deleted file is both: `moves`, and `discards` limited to this file.
    """
    return tuple(_read(list(command.words), _Repository(command.folder, find_setting), MAX_ALIASES))


class _Repository:
    """Where git runs, as its global options select it."""

    def __init__(self, folder: str, find_setting: Callable[[str], str]) -> None:
        self.folder = folder
        self.options: tuple[str, ...] = ()
        self._settings: dict[str, str] = {}
        self._find_setting = find_setting

    def read_options(self, words: list[str | None]) -> bool:
        """Remove the global options from the words; whether a command follows. Raises _UnknownError."""
        while words and (words[0] is None or words[0].startswith("-")):
            word = _require_known(words.pop(0))
            name, equals, value = word.partition("=")
            if word in ("-C", "-c") or (name in _VALUED and not equals):
                value = _require_known(words.pop(0)) if words else ""
            if word == "-C":
                self.folder = os.path.normpath(os.path.join(self.folder, value))
            elif word == "-c":
                setting, equals, text = value.partition("=")
                self._settings[setting.lower()] = text if equals else "true"
                self.options += ("-c", value) * (setting.lower() in ("core.worktree", "core.excludesfile"))
            elif name in _VALUED:
                self.options += (f"{name}={value}",)
            elif word in _SELECTING:
                self.options += (word,)
            elif word in ("-h", "--help", "-v", "--version"):
                return False
        return bool(words)

    def read_setting(self, name: str) -> str:
        return self._settings.get(name) or self._find_setting(name)

    def is_set(self, name: str) -> bool:
        return self.read_setting(name).lower() not in ("", *_FALSE)

    def find_top(self) -> str:
        """The top of the worktree, as far as the file system shows it."""
        return find_top(self.folder) or self.folder

    def is_path(self, word: str) -> bool:
        """Whether a word can only be a path: git's rule, without the names of branches."""
        is_spelled = word in (".", "..") or word.startswith((":", "./", "../")) or bool(_PATTERN & set(word))
        return is_spelled or os.path.lexists(os.path.join(self.folder, word))

    def list_names(self, words: Sequence[str | None], with_folders: bool = False) -> tuple[str, ...]:
        """The words that name one file, or one folder, as absolute paths, with the slash at their end."""
        names = []
        for word in filter(None, words):
            path = os.path.normpath(os.path.join(self.folder, word))
            is_pattern = word.startswith(":") or (_PATTERN & set(word) and not os.path.lexists(path))
            if not is_pattern and (with_folders or not os.path.isdir(path)):
                names.append(path + "/" * word.endswith("/"))
        return tuple(names)


class _UnknownError(Exception):
    """A word that only a shell knows decides what the command does."""


def _require_known(word: str | None) -> str:
    if word is None:
        raise _UnknownError
    return word


class _Call:
    """One command of git with its options. `operands`: before `--`; `rest`: behind it, None without `--`."""

    def __init__(self, verb: str, words: Sequence[str | None], options: str, repository: _Repository) -> None:
        self.verb = verb
        self.repository = repository
        self.flags: dict[str, list[str | None]] = {}
        self.operands: list[str | None] = []
        self.rest: list[str | None] | None = None
        self._shorts, self._longs = dict[str, tuple[str, str]](), dict[str, str]()
        for option in options.split():
            mode = option[-1] if option[-1] in "=?" else ""
            short, _, name = option.removesuffix(mode).rpartition("/")
            self._shorts[short or name] = (name, mode)
            self._longs[name] = mode
        queue = list(words)
        while queue:
            word = queue.pop(0)
            if word in ("--", "--end-of-options"):
                self.rest = queue
                break
            if word is None or word == "-" or not word.startswith("-"):
                self.operands.append(word)
            elif word.startswith("--"):
                self._take_long(word[2:], queue)
            else:
                self._take_shorts(word[1:], queue)

    def _take_long(self, word: str, queue: list[str | None]) -> None:
        typed, equals, value = word.partition("=")
        typed, denied = typed.removeprefix("no-"), typed.startswith("no-")
        full = [long for long in self._longs if long.startswith(typed)]
        name = full[0] if typed not in self._longs and len(full) == 1 else typed  # git takes abbreviations
        self.flags.pop(name if denied else f"no-{name}", None)
        if self._longs.get(name) == "=" and not equals and not denied:
            self._set(name, queue.pop(0) if queue else "")
        else:
            self._set(f"no-{name}" if denied else name, value)

    def _take_shorts(self, letters: str, queue: list[str | None]) -> None:
        for at, letter in enumerate(letters, 1):
            name, mode = self._shorts.get(letter, (letter, ""))
            if mode:
                self._set(name, queue.pop(0) if mode == "=" and not letters[at:] and queue else letters[at:])
                break
            self._set(name, "")

    def _set(self, name: str, value: str | None) -> None:
        self.flags[name] = [*self.flags.pop(name, ()), value]  # the last option is the last key

    def has(self, *names: str) -> bool:
        return any(name in self.flags for name in names)

    def find_value(self, *names: str) -> str:
        """Of the first of these options that there is. Raises _UnknownError."""
        return next((_require_known(self.flags[name][-1]) for name in names if name in self.flags), "")

    def find_flag(self, *names: str) -> str:
        """The first of these options that there is, for the name of an action."""
        return next((f" --{name}" for name in names if name in self.flags), "")

    def list_words(self) -> list[str | None]:
        return [*self.operands, *(self.rest or ())]

    def is_limited(self) -> bool:
        return bool(self.list_words()) or self.has("pathspec-from-file")

    def make_action(self, effect: Effect, kinds: str = "", pathspecs: Sequence[str] = (), **more: Any) -> GitAction:
        """`kinds`: their first letters. `flag`: what the name of the command ends with."""
        name, repository = f"git {self.verb}{more.pop('flag', '')}", self.repository
        named = frozenset(_KINDS[letter] for letter in kinds)
        return GitAction(name, effect, named, repository.folder, repository.options, tuple(pathspecs), **more)

    def reaches_inside(self) -> bool:
        """Whether the command changes submodules, or removes repositories: nobody looks into these beforehand."""
        if self.verb == "clean":
            return self.is_forced_twice()
        recurses = self.has("recurse-submodules") or self.repository.is_set("submodule.recurse")
        return self.verb in _RECURSING and recurses and not self.has("no-recurse-submodules")

    def is_forced_twice(self) -> bool:
        return len(self.flags.get("force", ())) > 1

    def make_unknown(self) -> GitAction:
        return self.make_action("moves")

    def make_limited(self, words: Sequence[str | None], effect: Effect, kinds: str, **more: Any) -> list[GitAction]:
        """An action over these pathspecs; those of a file count as all. What only a shell knows is unknown."""
        pathspecs = [word for word in words if word is not None]
        unknown = [self.make_unknown()] * (len(pathspecs) < len(words))
        if unknown and all(spec.startswith(_EXCLUDING) for spec in pathspecs):
            return unknown
        return [self.make_action(effect, kinds, pathspecs, **more), *unknown]


def _read(words: list[str | None], repository: _Repository, aliases: int) -> list[GitAction]:
    call = _Call("", (), "", repository)
    try:
        if not repository.read_options(words):
            return []
        verb = _require_known(words[0])
        call = _Call(verb, words[1:], _OPTIONS.get("add" if verb == "stage" else verb, _OTHER_OPTIONS), repository)
        if call.has("help") or words[1:] == ["-h"]:
            return []
        if verb in _READS.split():
            writes = call.has("output") or (verb == "apply" and call.has("cached", "index", "3way", "3"))
            return [call.make_unknown()] * writes
        if verb in _READERS:
            actions = _READERS[verb](call) or [call.make_unknown()] * (None in call.operands)  # which may be options
            return actions + [call.make_unknown()] * (actions != [] and call.reaches_inside())
        alias = repository.read_setting(f"alias.{verb.lower()}")
        if alias and not alias.startswith("!") and aliases:
            return _read([*shlex.split(alias), *words[1:]], repository, aliases - 1)
    except (_UnknownError, ValueError):  # ValueError: such as an alias with an open quote
        pass
    return [call.make_unknown()]


def _add(call: _Call) -> list[GitAction]:
    is_whole = call.has("all", "update", "renormalize", "patch", "interactive", "edit")
    if call.has("dry-run", "refresh") or not (call.is_limited() or is_whole):
        return []
    force, update = call.has("force"), call.has("update", "renormalize", "patch", "edit")
    kinds = "c" if update else "cui" if force else "cu"
    return call.make_limited(call.list_words(), "includes", kinds, flag=call.find_flag("all", "update"))


def _checkout(call: _Call) -> list[GitAction]:
    operands, rest = call.operands, call.rest
    is_plain = rest is None and bool(operands) and not call.has("b", "B", "orphan", "detach", "track")
    if rest or call.has("pathspec-from-file", "patch"):
        is_tree = bool(rest) or not (operands and call.repository.is_path(_require_known(operands[0])))
        return _checkout_paths(call, operands[:1] if is_tree else [], rest or operands[is_tree:])
    is_path = is_plain and operands[0] is not None and call.repository.is_path(operands[0])
    if is_path or (is_plain and len(operands) > 1):
        return _checkout_paths(call, [] if is_path else operands[:1], operands)
    actions = _switch(call)
    if is_plain and operands[0] not in ("-", *_HEADS) and not call.has("force", "merge"):
        actions += call.make_limited(operands, "discards", "c")
    return actions


def _checkout_paths(call: _Call, trees: Sequence[str | None], words: Sequence[str | None]) -> list[GitAction]:
    """`trees`: empty for the index. It may be the first of the words, too: then it is a commit or a deleted file."""
    tree = trees[0] if trees else ""
    names = call.repository.list_names([word for word in words if word != tree])
    tree = "" if tree is None or tree in _HEADS else tree
    return call.make_limited(words, "discards", "sc" if trees else "c", names=names, tree=tree)


def _switch(call: _Call) -> list[GitAction]:
    """To a branch or commit, or to a new branch from it."""
    target = _require_known(call.operands[0]) if call.operands else ""
    call.find_value("b", "create", "orphan")  # one that only a shell knows may be several words
    tree, flag = "" if target in _HEADS else target, call.find_flag("force", "discard-changes", "merge")
    if flag:
        return [call.make_action("discards", "sc", flag=flag, tree=tree)]
    return [call.make_action("moves", "scu")] if tree != "" or call.has("orphan") else []


def _clean(call: _Call) -> list[GitAction]:
    is_free = call.repository.read_setting("clean.requireforce").lower() in _FALSE
    if call.has("dry-run") or not (is_free or call.has("force", "interactive")):
        return []
    patterns = [it for it in map(_require_known, call.flags.get("exclude", ())) if not it.startswith("!")]
    kinds = "i" if call.has("X") and not patterns else "ui" if call.has("x", "X") else "u"
    words = [
        word for word in call.list_words() if not (word or "").startswith(_EXCLUDING)
    ]  # git may remove their folder
    words = words or ([] if call.repository.find_top() == call.repository.folder else ["."])
    for pattern in () if call.has("X") else patterns:  # of .gitignore: -X removes them, too
        name = f"{'' if '/' in pattern.rstrip('/') else '**/'}{pattern.strip('/')}"
        words += [f":(exclude,top,glob){name}", f":(exclude,top,glob){name}/**"]
    is_shallow = not (call.list_words() or call.has("d"))
    flag = " -ff" if call.is_forced_twice() else " -f"
    return call.make_limited(words, "discards", kinds, flag=flag, shallow=is_shallow)


def _commit(call: _Call) -> list[GitAction]:
    is_limited, includes = call.is_limited(), call.has("include")
    is_message = call.has("amend") and call.has("only") and not is_limited
    if call.has("dry-run", "short", "porcelain", "long", "null") or is_message:
        return []
    flag = call.find_flag("all", "amend", "include")
    paths = call.make_limited(call.list_words(), "includes", "c" if includes else "sc", flag=flag)
    if is_limited and not includes:
        return paths
    kinds = "sc" if call.has("all", "patch", "interactive") else "s"
    return [call.make_action("includes", kinds, flag=flag), *(paths if is_limited else ())]


def _mv(call: _Call) -> list[GitAction]:
    words, repository = [word for word in call.list_words() if word is not None], call.repository
    if call.has("dry-run") or len(call.list_words()) < 2:
        return []
    if len(words) < len(call.list_words()):
        return [
            call.make_action("discards", names=repository.list_names(words, with_folders=True)),
            call.make_unknown(),
        ]
    *sources, goal = words
    folders = {it for it in words if os.path.isdir(os.path.join(repository.folder, it))}
    goals = [os.path.join(goal, os.path.basename(it.rstrip("/"))) if goal in folders else goal for it in sources]
    limits = [*sources, *(f"{goal}/" if it in folders else goal for it, goal in zip(sources, goals, strict=True))]
    names = repository.list_names(limits, with_folders=True)
    return [call.make_action("discards", "scui" if any(map(os.path.isdir, names)) else "sc", limits, names=names)]


def _reset(call: _Call) -> list[GitAction]:
    modes = [name for name in call.flags if name in ("hard", "merge", "keep", "soft", "mixed")] or ["mixed"]
    mode, operands, flag = modes[-1], call.operands, f" --{modes[-1]}" * (modes[-1] != "mixed")
    tree = "" if not operands or operands[0] in _HEADS else operands[0]
    moves = [call.make_action("moves", "scu", flag=flag)] if tree != "" else []
    if mode == "hard":
        return [call.make_action("discards", "sc", flag=flag, tree=tree or "")]
    if mode in ("merge", "keep"):
        return [call.make_action("discards", "s", flag=flag), *moves]
    if mode == "soft":
        return moves
    is_path = len(operands) > 1 or (operands and call.repository.is_path(_require_known(operands[0])))
    if call.rest or is_path or call.has("pathspec-from-file"):
        return call.make_limited(call.rest or operands, "moves", "s")
    return moves or [call.make_action("moves", "s")]


def _restore(call: _Call) -> list[GitAction]:
    if not (call.is_limited() or call.has("patch")):
        return []
    words, source = call.list_words(), call.find_value("source")
    if call.has("staged") and not call.has("worktree"):
        return call.make_limited(words, "moves", "s", flag=" --staged")
    kinds, tree = "sc" if source or call.has("staged") else "c", "" if source in _HEADS else source
    return call.make_limited(words, "discards", kinds, names=call.repository.list_names(words), tree=tree)


def _rm(call: _Call) -> list[GitAction]:
    words, force = call.list_words(), call.has("force")
    if call.has("dry-run") or not call.is_limited():
        return []
    if call.has("cached"):
        return call.make_limited(words, "includes", "sc", flag=" --cached")
    names = call.repository.list_names(words, with_folders=True)  # without force, git refuses over changes
    return call.make_limited(words, "discards", "sc" * force, names=names)


def _stash(call: _Call) -> list[GitAction]:
    verb, words = _require_known((call.operands or [""])[0]), call.list_words()[bool(call.operands) :]
    call.verb = f"stash {verb}".rstrip()
    match verb:
        case "clear":
            return [call.make_action("discards", stash="*")]
        case "pop" | "drop" | "branch":
            taken = call.make_action("discards", stash=_entry((*words[verb == "branch" :], "0")[0]))
            return [taken, *[call.make_unknown()] * (verb != "drop")]
        case "save":
            words = []  # they are the message
        case "list" | "show" | "create" | "store":
            return []
        case _ if verb not in ("", "push"):  # such as apply, or paths behind -p
            return [call.make_unknown()]
    kinds = "s" if call.has("staged") else "c" if call.has("keep-index") else "sc"
    kinds += "ui" if call.has("all") else "u" if call.has("include-untracked") else ""
    return call.make_limited(words, "discards", kinds)


def _entry(word: str | None) -> str:
    """An entry of the stash in the form stash@{0}. Raises _UnknownError, such as for stash@{yesterday}."""
    number = re.fullmatch(r"(?:refs/)?(?:stash)?(?:@\{)?(\d*)\}?", _require_known(word))
    if number is None:
        raise _UnknownError
    return f"stash@{{{int(number[1] or 0)}}}"


def _step(call: _Call) -> list[GitAction]:
    """Commands that replay commits: a step of a running one, or a new one."""
    verb, repository = call.verb, call.repository
    if call.has("quit", "edit-todo", "show-current-patch", "dry-run"):
        return []
    if call.has("abort", "skip"):
        return [call.make_action("discards", "sc" if verb == "rebase" else "s", flag=call.find_flag("abort", "skip"))]
    if call.has("continue", "resolved"):
        return [call.make_action("includes", "s", flag=" --continue")]
    rebases = verb == "rebase" or (call.has("rebase") and call.find_value("rebase") not in _FALSE)
    if verb == "pull" and not call.has("rebase", "no-rebase"):
        rebases = repository.is_set("pull.rebase")
    stashes = call.has("autostash") or repository.is_set(f"{'rebase' if rebases else 'merge'}.autostash")
    if stashes and verb in ("rebase", "pull", "merge") and not call.has("no-autostash"):
        return [call.make_action("discards", "sc", flag=" --autostash")]
    return [call.make_action("moves", "scu"), *([call.make_unknown()] if call.has("exec") else [])]


def _read_rare(call: _Call) -> list[GitAction]:
    """Commands that nobody can know beforehand, but for what they do to the stash and to whole worktrees."""
    words = call.list_words()
    first, verb = words[0] if words else "", call.verb
    if verb == "update-ref":
        drops = call.has("stdin") or (call.has("d") and "refs/stash" in words)
        return [call.make_action("discards", stash="*", flag=" -d") if drops else call.make_unknown()]
    if first in _READING or (verb == "reflog" and call.has("dry-run", "n")):
        return []
    is_stash = verb == "reflog" and (call.has("all") or any("stash" in word for word in words if word))
    if is_stash and first in ("delete", "expire"):
        is_entry = first == "delete" and len(words) == 2 and (words[1] or "")[-2:-1].isdecimal()
        return [call.make_action("discards", stash=_entry(words[1]) if is_entry else "*", flag=f" {first}")]
    if verb == "worktree" and first in ("remove", "move") and words[1:]:
        word, (path, *_) = _require_known(words[1]), call.repository.list_names(words[1:2], with_folders=True)
        return [call.make_action("discards", worktree=path if os.path.isdir(path) else word, flag=f" {first}")]
    return [call.make_unknown()]


_READERS: Final[dict[str, Callable[[_Call], list[GitAction]]]] = {
    **dict.fromkeys(("add", "stage"), _add),
    **dict.fromkeys(("am", "cherry-pick", "merge", "pull", "rebase", "revert"), _step),
    **dict.fromkeys(("bisect", "reflog", "submodule", "update-ref", "worktree"), _read_rare),
    "checkout": _checkout,
    "clean": _clean,
    "commit": _commit,
    "mv": _mv,
    "reset": _reset,
    "restore": _restore,
    "rm": _rm,
    "stash": _stash,
    "switch": _switch,
}


def concerns(action: GitAction, status: str) -> bool:
    """Whether a file with these two letters is among the kinds that the action concerns."""
    if status in ("??", "!!"):
        return ("untracked" if status == "??" else "ignored") in action.kinds
    return ("staged" in action.kinds and status[0] != " ") or ("changed" in action.kinds and status[1] != " ")
