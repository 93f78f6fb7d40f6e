"""What a git command does to uncommitted work, and whether that is the work of another session.

Pure, standard library only: functions over the words of a command, a list of dirty files and whose they are. Only
whether a word is a path is looked up below the folder of the command. docs/git.md has the table of commands.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

Effect = Literal["discards", "includes", "moves"]
Kind = Literal["staged", "changed", "untracked", "ignored"]

MAX_SHOWN: Final = 80
"""Characters of a name in a text."""
MAX_LISTED: Final = 3
MAX_TEXT: Final = 400
"""Characters of a text, unless its names are very long."""
MAX_PATHSPECS: Final = 100_000
"""Bytes that are read of a file with pathspecs or submodules."""
MAX_ALIASES: Final = 10
"""Aliases of aliases that are followed."""

_KINDS: Final[dict[str, Kind]] = {"s": "staged", "c": "changed", "u": "untracked", "i": "ignored"}
_HEADS: Final = ("", "HEAD", "@")
_FALSE: Final = ("false", "no", "off", "0")
_PATTERN: Final = frozenset("*?[\\")
_EXCLUDING: Final = (":!", ":^", ":(exclude")
_VALUED: Final = ("--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source")
"""Global options with a value that may be the next word."""
_SELECTING: Final = ("--bare", "--literal-pathspecs", "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs")
_PATHS: Final = " pathspec-from-file= pathspec-file-nul"
_BRANCHES: Final = " f/force m/merge conflict= d/detach t/track? orphan= recurse-submodules? overwrite-ignore theirs"
_OPTIONS: Final = {
    "add": "A/all u/update n/dry-run p/patch i/interactive e/edit f/force renormalize refresh chmod=" + _PATHS,
    "archive": "o/output=",
    "branch": "d/delete f/force r/remotes a/all D m/move c/copy u/set-upstream-to= contains= merged= sort= format=",
    "checkout": "b= B= p/patch 2/ours 3/theirs" + _BRANCHES + _PATHS,
    "checkout-index": "a/all f/force prefix= stage= temp stdin",
    "clean": "n/dry-run f/force i/interactive e/exclude=",
    "commit": "m/message= F/file= C/reuse-message= c/reedit-message= fixup= squash= author= date= t/template= cleanup="
    " a/all i/include o/only p/patch interactive amend dry-run short porcelain long z/null trailer= S/gpg-sign?"
    " u/untracked-files?" + _PATHS,
    "merge-file": "p/stdout L= marker-size=",
    "mv": "n/dry-run f/force",
    "pull": "r/rebase? autostash dry-run",
    "read-tree": "n/dry-run reset empty prefix= index-output= exclude-per-directory=",
    "rebase": "abort skip quit continue autostash edit-todo show-current-patch x/exec= s/strategy= X/strategy-option=",
    "reflog": "all n/dry-run expire= expire-unreachable=",
    "reset": "hard merge keep soft mixed p/patch recurse-submodules?" + _PATHS,
    "restore": "s/source= S/staged W/worktree p/patch conflict=" + _PATHS,
    "rm": "n/dry-run f/force cached" + _PATHS,
    "stash": "p/patch S/staged k/keep-index u/include-untracked a/all m/message= q/quiet index" + _PATHS,
    "submodule": "f/force all recursive reference= filter= depth= j/jobs= b/branch= name=",
    "switch": "c/create= C/force-create= discard-changes" + _BRANCHES,
    "update-index": "g/again add refresh really-refresh cacheinfo= chmod= index-version= stdin index-info",
    "update-ref": "m= stdin create-reflog no-deref",
    "worktree": "f/force",
}
"""The options that matter, and all that have a value (`=`, or `?`: only if attached), as short/long."""
_OTHER_OPTIONS: Final = "abort skip quit continue r/resolved autostash edit-todo show-current-patch output="
_RARE: Final = """
bisect branch checkout-index filter-branch merge-file read-tree reflog sparse-checkout symbolic-ref update-index
update-ref worktree
"""
_READS: Final = """
annotate apply archive blame bugreport bundle cat-file check-attr check-ignore check-ref-format cherry citool clone
commit-graph commit-tree config count-objects describe diagnose diff diff-files diff-index diff-tree difftool
fast-export fetch for-each-ref format-patch fsck gc grep gui hash-object help init instaweb interpret-trailers log
ls-files ls-remote ls-tree maintenance merge-base merge-tree mktree name-rev notes prune push range-diff remote repack
replace request-pull rerere rev-list rev-parse send-email shortlog show show-branch show-ref status tag var
verify-commit verify-tag version whatchanged write-tree
"""
"""Commands that leave worktree and index alone, but for `--output`. The shell part reads `apply`."""


class GitCommand(NamedTuple):
    """A git command in a shell call. `words`: after `git`; None: a word that only a shell knows. `folder`: where it
    runs, absolute."""

    words: tuple[str | None, ...]
    folder: str


class GitAction(NamedTuple):
    """What one git command does.

    `name`: as people call it, such as `git reset --hard`. `effect`: it takes changes away (`discards`), takes them into
    a commit or the index (`includes`), or moves HEAD or the index below them (`moves`). `kinds`: of which dirty files:
    `concerns` selects them among those that git lists for `pathspecs`. `folder`, `options`: where git runs, and the
    global options that select repository and worktree. `pathspecs`: what limits it, empty: the whole worktree. `names`:
    paths that the command itself names and changes, absolute, without patterns. `stash`: the entry that it takes away,
    such as `stash@{0}`, or `*` for all. `worktree`: the one that it removes or moves, absolute if the folder exists,
    else as given: git also takes the end of its path. `branch`: the one that it deletes. `narrower`: the command that
    does the same without others' files, with `{paths}` for the rest, `{own}` if it must name them; empty if there is
    none. `tree`: a commit whose files it writes by force: of the files in its limits, those that this commit contains
    are lost, too, if they are untracked, ignored, or added since HEAD. `shallow`: it leaves files in untracked folders
    alone. `keeps_added`: it leaves files alone that are added since HEAD.

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
    keeps_added: bool = False

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
    run. `config`: of the repository, by lower-case name, such as `rebase.autostash` and `alias.co`; it is read only
    where it matters.

    Words that only a shell knows do not make a denial: what the others leave certain is returned, with one action that
    `is_unknown`. A word that may be a branch or a deleted file is both: `moves`, and `discards` limited to this file.
    """
    return tuple(_read(list(command.words), _Repository(command.folder, config), MAX_ALIASES))


class _Repository:
    """Where git runs, as its global options select it. `typed`: those that a narrower command needs, too."""

    def __init__(self, folder: str, config: Mapping[str, str]) -> None:
        self.folder = folder
        self.options: tuple[str, ...] = ()
        self.typed = ["git"]
        self._settings: dict[str, str] = {}
        self._config = config

    def take(self, words: list[str | None]) -> bool:
        """Remove the global options from the words; whether a command follows. Raises _UnknownError."""
        while words and (words[0] is None or words[0].startswith("-")):
            word = _known(words.pop(0))
            name, equals, value = word.partition("=")
            if word in ("-C", "-c") or (name in _VALUED and not equals):
                value = _known(words.pop(0)) if words else ""
            if word == "-C":
                self.folder = os.path.normpath(os.path.join(self.folder, value))
                self.typed += [word, value]
            elif word == "-c":
                setting, equals, text = value.partition("=")
                self._settings[setting.lower()] = text if equals else "true"
                self.options += ("-c", value) * (setting.lower() in ("core.worktree", "core.excludesfile"))
            elif name in _VALUED:
                self.options += (f"{name}={value}",)
                self.typed.append(f"{name}={value}")
            elif word in _SELECTING:
                self.options += (word,)
            elif word in ("-h", "--help", "-v", "--version"):
                return False
        return bool(words)

    def setting(self, name: str) -> str:
        return self._settings.get(name) or self._config.get(name, "")

    def is_set(self, name: str) -> bool:
        return self.setting(name).lower() not in ("", *_FALSE)

    def top(self) -> str:
        """The top of the worktree, as far as the file system shows it."""
        folder = self.folder
        while not os.path.lexists(os.path.join(folder, ".git")) and folder != os.path.dirname(folder):
            folder = os.path.dirname(folder)
        return folder if folder != os.path.dirname(folder) else self.folder

    def is_path(self, word: str) -> bool:
        """Whether a word can only be a path: git's rule, without the names of branches."""
        is_spelled = word in (".", "..") or word.startswith((":", "./", "../")) or bool(_PATTERN & set(word))
        return is_spelled or os.path.lexists(os.path.join(self.folder, word))

    def names(self, words: Sequence[str | None], with_folders: bool = False) -> tuple[str, ...]:
        """The words that name one file, or one folder, as absolute paths."""
        names = []
        for word in filter(None, words):
            path = os.path.normpath(os.path.join(self.folder, word))
            is_pattern = word.startswith(":") or (_PATTERN & set(word) and not os.path.lexists(path))
            if not is_pattern and (with_folders or not os.path.isdir(path)):
                names.append(path)
        return tuple(names)

    def submodules(self, words: Sequence[str | None] = ()) -> list["_Repository"]:
        """Those that the words name; all without words."""
        top, names = self.top(), self.names(words, with_folders=True)
        lines = (line.partition("=") for line in _read_file(os.path.join(top, ".gitmodules")).split("\n"))
        paths = [os.path.join(top, value.strip()) for key, _, value in lines if key.strip() == "path"]
        paths = [path for path in paths if os.path.lexists(os.path.join(path, ".git"))]  # git ignores the others
        return [_Repository(path, self._config) for path in paths if path in names or not names]


class _UnknownError(Exception):
    """A word that only a shell knows decides what the command does."""


def _known(word: str | None) -> str:
    if word is None:
        raise _UnknownError
    return word


def _read_file(path: str) -> str:
    """Its text; empty if it cannot be read, or is too long."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_PATHSPECS + 1)
    except OSError:
        return ""
    return os.fsdecode(content) if len(content) <= MAX_PATHSPECS else ""


class _Call:
    """One command of git with its options. `typed`: all words; `operands`: before `--`; `rest`: behind it, None
    without `--`."""

    def __init__(self, verb: str, words: Sequence[str | None], options: str, repository: _Repository) -> None:
        self.verb = verb
        self.typed = words
        self.repository = repository
        self.flags: dict[str, list[str | None]] = {}
        self.operands: list[str | None] = []
        self.rest: list[str | None] | None = None
        self._shorts, self._longs = _specify(options)
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
        name = self._complete(typed.removeprefix("no-"))
        self.flags.pop(f"no-{name}", None)
        if typed.startswith("no-"):
            self.flags.pop(name, None)
            self.flags[f"no-{name}"] = [None]
        elif self._longs.get(name) == "=" and not equals:
            self._set(name, queue.pop(0) if queue else "")
        else:
            self._set(name, value)

    def _take_shorts(self, letters: str, queue: list[str | None]) -> None:
        for at, letter in enumerate(letters, 1):
            name, mode = self._shorts.get(letter, (letter, ""))
            if mode:
                self._set(name, queue.pop(0) if mode == "=" and not letters[at:] and queue else letters[at:])
                break
            self._set(name, "")

    def _set(self, name: str, value: str | None) -> None:
        self.flags[name] = [*self.flags.pop(name, ()), value]  # the last option is the last key

    def _complete(self, name: str) -> str:
        """The long option that git takes this abbreviation for."""
        names = [long for long in self._longs if long.startswith(name)]
        return names[0] if name not in self._longs and len(names) == 1 else name

    def has(self, *names: str) -> bool:
        return any(name in self.flags for name in names)

    def value(self, *names: str) -> str:
        """Of the first of these options that there is. Raises _UnknownError."""
        return next((_known(self.flags[name][-1]) for name in names if name in self.flags), "")

    def flag(self, *names: str) -> str:
        """The first of these options that there is, for the name of an action."""
        return next((f" --{name}" for name in names if name in self.flags), "")

    def words(self) -> list[str | None]:
        return [*self.operands, *(self.rest or ())]

    def is_limited(self) -> bool:
        return bool(self.words()) or self.has("pathspec-from-file")

    def action(
        self, effect: Effect, kinds: str = "", pathspecs: Sequence[str] = (), narrower: str = "", **more: Any
    ) -> GitAction:
        """`kinds`: their first letters. `narrower`: without `git`. `flag`: what the name of the command ends with."""
        name, repository = f"git {self.verb}{more.pop('flag', '')}", self.repository
        named = frozenset(_KINDS[letter] for letter in kinds)
        more["narrower"] = narrower and f"{' '.join(map(_quote, repository.typed))} {narrower}"
        return GitAction(name, effect, named, repository.folder, repository.options, tuple(pathspecs), **more)

    def unknown(self) -> GitAction:
        return self.action("moves")

    def limited(
        self, words: Sequence[str | None], effect: Effect, kinds: str, narrower: str = "", **more: Any
    ) -> list[GitAction]:
        """An action over these pathspecs and those of a file; what only a shell knows is unknown."""
        pathspecs = [word for word in words if word is not None]
        is_complete = len(pathspecs) == len(words)
        if self.has("pathspec-from-file"):  # of which `-` is the standard input
            text = _read_file(os.path.join(self.repository.folder, self.flags["pathspec-from-file"][-1] or "-"))
            lines = text.split("\0" if self.has("pathspec-file-nul") else "\n")
            pathspecs += [line.removesuffix("\r") for line in lines if line]
            is_complete = is_complete and bool(text) and not any(line.startswith('"') for line in lines)
        actions = [] if is_complete else [self.unknown()]
        if is_complete or not all(spec.startswith(_EXCLUDING) for spec in pathspecs):
            actions.insert(0, self.action(effect, kinds, pathspecs, narrower, **more))
        return actions

    def worktree(self, target: str, new: str = "") -> str:
        """The command that makes a worktree for a branch or commit; `new`: for a branch with this name."""
        name = "".join(letter if letter.isalnum() else "-" for letter in new or target).strip("-")
        words = [*(("-b", new) if new else ()), f"{self.repository.top()}-{name or 'new'}", target]
        return "worktree add " + " ".join(_quote(word) for word in words if word)


def _specify(options: str) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Short options with name and kind, long ones with kind."""
    shorts, longs = {}, {}
    for option in options.split():
        mode = option[-1] if option[-1] in "=?" else ""
        short, _, name = option.removesuffix(mode).rpartition("/")
        shorts[short or name] = (name, mode)
        longs[name] = mode
    return shorts, longs


def _read(words: list[str | None], repository: _Repository, aliases: int) -> list[GitAction]:
    call = _Call("", (), "", repository)
    try:
        if not repository.take(words):
            return []
        verb = _known(words[0])
        call = _Call(verb, words[1:], _OPTIONS.get("add" if verb == "stage" else verb, _OTHER_OPTIONS), repository)
        if call.has("help") or words[1:] == ["-h"]:
            return []
        if verb in _READS.split():
            names = repository.names(call.flags.get("output", ()))
            return [call.action("discards", names=names, flag=" --output")] if names else []
        reader = _READERS.get(verb, _read_rare if verb in _RARE.split() else None)
        if reader is not None:
            return reader(call) or [call.unknown()] * (None in call.operands)  # which may be options
        alias = repository.setting(f"alias.{verb.lower()}")
        if alias and not alias.startswith("!") and aliases:
            return _read([*_split(alias), *words[1:]], repository, aliases - 1)
    except _UnknownError:
        pass
    return [call.unknown()]


def _add(call: _Call) -> list[GitAction]:
    is_whole = call.has("all", "update", "renormalize", "patch", "interactive", "edit")
    if call.has("dry-run", "refresh") or not (call.is_limited() or is_whole):
        return []
    force, update = call.has("force"), call.has("update", "renormalize", "patch", "edit")
    narrower = f"add{' -f' * force}{' -u' * update} -- {{paths}}"
    kinds = "c" if update else "cui" if force else "cu"
    return call.limited(call.words(), "includes", kinds, narrower, flag=call.flag("all", "update"))


def _checkout(call: _Call) -> list[GitAction]:
    operands, rest = call.operands, call.rest
    is_plain = rest is None and bool(operands) and not call.has("b", "B", "orphan", "detach", "track")
    if rest or call.has("pathspec-from-file", "patch"):
        is_tree = bool(rest) or not (operands and call.repository.is_path(_known(operands[0])))
        return _checkout_paths(call, operands[:1] if is_tree else [], rest or operands[is_tree:])
    if is_plain and operands[0] and call.repository.is_path(operands[0]):
        return _checkout_paths(call, [], operands)
    if is_plain and len(operands) > 1:
        return _checkout_paths(call, operands[:1], operands)
    target = _known(operands[0]) if operands else ""
    actions = _switch_to(call, target, call.value("b", "B", "orphan"))
    if is_plain and target not in ("-", *_HEADS) and not call.has("force", "merge"):
        actions += call.limited(operands, "discards", "c", "checkout -- {paths}")
    return actions


def _checkout_paths(call: _Call, trees: Sequence[str | None], words: Sequence[str | None]) -> list[GitAction]:
    """`trees`: empty for the index. It may be the first of the words, too: then it is a commit or a deleted file."""
    tree = trees[0] if trees else ""
    if tree is None and words and words[0] is None:
        words = words[1:]
    source = f"{_quote(tree)} " if tree else ""
    narrower = f"checkout {source}-- {{{'own' if tree in words else 'paths'}}}"
    return call.limited(
        words,
        "discards",
        "sc" if trees else "c",
        "" if tree is None else narrower,
        names=call.repository.names([word for word in words if word != tree]),
        tree="" if tree is None or tree in _HEADS else tree,
        keeps_added=bool(trees),
    )


def _switch(call: _Call) -> list[GitAction]:
    new = call.value("create", "force-create", "orphan")
    if not call.operands and not new and not call.has("detach"):
        return []
    if new and not call.operands:
        for name in ("force", "discard-changes"):
            call.flags.pop(name, None)  # git keeps the changes
    return _switch_to(call, _known(call.operands[0]) if call.operands else "", new)


def _switch_to(call: _Call, target: str, new: str) -> list[GitAction]:
    """To a branch or commit, or to a new branch from it."""
    tree, flag = "" if target in _HEADS else target, call.flag("force", "discard-changes", "merge")
    narrower = call.worktree(tree, new) if target or new else "restore --staged --worktree -- {paths}"
    if flag:
        kinds = "c" if flag == " --merge" else "sc"  # it refuses over staged files
        return [call.action("discards", kinds, (), narrower, flag=flag, tree=tree), *_in_submodules(call)]
    return [call.action("moves", "scu", (), narrower)] if target or new or call.has("detach") else []


def _clean(call: _Call) -> list[GitAction]:
    is_free = call.repository.setting("clean.requireforce").lower() in _FALSE
    if call.has("dry-run") or not (is_free or call.has("force", "interactive")):
        return []
    kinds = "i" if call.has("X") else "ui" if call.has("x") else "u"
    words = [word for word in call.words() if not (word or "").startswith(_EXCLUDING)]  # git may remove their folder
    words = words or ([] if call.repository.top() == call.repository.folder else ["."])
    for pattern in map(_known, call.flags.get("exclude", ())):  # of .gitignore
        name = f"{'' if '/' in pattern.rstrip('/') else '**/'}{pattern.strip('/')}"
        words += [f":(exclude,top,glob){name}", f":(exclude,top,glob){name}/**"]
    narrower = f"clean -f{'x' * call.has('x')}{'X' * call.has('X')} -- {{own}}"
    shallow = not call.words() and not call.has("d")
    return call.limited(words, "discards", kinds, narrower, flag=" -f", shallow=shallow)


def _commit(call: _Call) -> list[GitAction]:
    is_limited, includes = call.is_limited(), call.has("include")
    is_message = call.has("amend") and call.has("only") and not is_limited
    if call.has("dry-run", "short", "porcelain", "long", "null") or is_message:
        return []
    narrower = f"commit{' --amend' if call.has('amend') else ' -m …'} --only -- {{own}}"
    if not is_limited or includes:
        kinds = "sc" if call.has("all", "patch", "interactive") else "s"
        flag = call.flag("all", "amend", "include")
        staged = [call.action("includes", kinds, (), narrower, flag=flag)]
        return staged + call.limited(call.words(), "includes", "c", narrower, flag=flag) if is_limited else staged
    return call.limited(call.words(), "includes", "sc", narrower)


def _mv(call: _Call) -> list[GitAction]:
    if call.has("dry-run") or len(call.words()) < 2:
        return []
    *sources, goal = call.words()
    folder, names = call.repository.folder, call.repository.names(sources, with_folders=True)
    if goal is None or None in sources:
        return [*([call.action("discards", names=names)] if names else []), call.unknown()]
    goals = [goal]
    if os.path.isdir(os.path.join(folder, goal)):
        goals = [os.path.join(goal, os.path.basename((source or "").rstrip("/"))) for source in sources]
    names = (*names, *call.repository.names(goals, with_folders=True))
    if not call.has("force", "k") and any(os.path.lexists(os.path.join(folder, path)) for path in goals):
        return [call.action("discards", names=names)]  # git refuses, unless a command before it removes the file
    kinds = "scui" if any(map(os.path.isdir, names)) else "sc"
    words = [f":(literal){word}" if _PATTERN & set(word) else word for word in (*filter(None, sources), *goals)]
    return [call.action("discards", kinds, words, names=names)]


def _reset(call: _Call) -> list[GitAction]:
    modes = [name for name in call.flags if name in ("hard", "merge", "keep", "soft", "mixed")] or ["mixed"]
    operands, mode, rest = call.operands, modes[-1], call.rest
    if mode in ("soft", "mixed"):
        return _reset_index(call, mode)
    if rest or len(operands) > 1 or call.has("patch", "pathspec-from-file"):
        return []  # git refuses
    is_head, tree = not operands or operands[0] in _HEADS, (operands or [""])[0] or ""
    narrower = f"restore --staged{' --worktree' * (mode != 'keep')} -- {{{'paths' if mode == 'hard' else 'own'}}}"
    if mode == "hard":
        narrower, tree = (narrower, "") if is_head or not tree else (call.worktree(tree), tree)
        return [call.action("discards", "sc", (), narrower, flag=" --hard", tree=tree), *_in_submodules(call)]
    action = call.action("discards", "s", (), narrower, flag=f" --{mode}")
    return [action] if is_head else [action, call.action("moves", "scu", flag=f" --{mode}")]


def _reset_index(call: _Call, mode: str) -> list[GitAction]:
    """Files stay as they are: HEAD moves, or files are unstaged."""
    operands, narrower = call.operands, "restore --staged -- {paths}"
    if mode == "soft":
        return [call.action("moves", "scu", flag=" --soft")] if operands and operands[0] not in _HEADS else []
    if call.rest or call.has("pathspec-from-file"):
        return call.limited(call.rest or [], "moves", "s", narrower)
    if not operands or operands == ["HEAD"] or call.has("patch"):
        return [call.action("moves", "s", (), narrower)]
    if len(operands) > 1 or call.repository.is_path(_known(operands[0])):
        return call.limited(operands, "moves", "s", narrower)
    return [call.action("moves", "scu")]


def _restore(call: _Call) -> list[GitAction]:
    if not (call.is_limited() or call.has("patch")):
        return []
    words, source = call.words(), call.value("source")
    if call.has("staged") and not call.has("worktree"):
        return call.limited(words, "moves", "s", "restore --staged -- {paths}", flag=" --staged")
    flags = [f"--source={source}"] * bool(source) + ["--staged", "--worktree"] * call.has("staged")
    narrower = " ".join(["restore", *map(_quote, flags), "-- {paths}"])
    kinds, tree = "sc" if flags else "c", "" if source in _HEADS else source
    return call.limited(words, "discards", kinds, narrower, names=call.repository.names(words), tree=tree)


def _rm(call: _Call) -> list[GitAction]:
    words, force = call.words(), call.has("force")
    if call.has("dry-run") or not call.is_limited():
        return []
    if call.has("cached"):
        return call.limited(words, "includes", "sc", "rm --cached -- {own}", flag=" --cached")
    names = call.repository.names(words, with_folders=True)  # without force, git refuses over changes
    return call.limited(words, "discards", "sc" * force, "rm -f -- {own}" * force, names=names)


def _stash(call: _Call) -> list[GitAction]:
    verb, words = _known((call.operands or [""])[0]), call.words()[bool(call.operands) :]
    call.verb = f"stash {verb}".rstrip()
    match verb:
        case "clear":
            return [call.action("discards", stash="*")]
        case "pop" | "drop" | "branch":
            entry = _entry((*words[verb == "branch" :], "0")[0])
            return [call.action("discards", stash=entry)] * bool(entry) + [call.unknown()] * (verb != "drop")
        case "apply":
            return [call.unknown()]
        case "save":
            words = []  # they are the message
        case "" | "push":
            pass
        case _ if not call.has("patch") or verb in ("list", "show", "create", "store"):
            return []
        case _:
            words = call.words()
    kinds = "s" if call.has("staged") else "c" if call.has("keep-index") else "sc"
    kinds += "ui" if call.has("all") else "u" if call.has("include-untracked") else ""
    names = ("patch", "staged", "keep-index", "include-untracked", "all")
    return call.limited(words, "discards", kinds, f"stash push{''.join(map(call.flag, names))} -- {{paths}}")


def _entry(word: str | None) -> str:
    """An entry of the stash in the form stash@{0}; empty if it is none. Raises _UnknownError."""
    text = _known(word).removeprefix("refs/")
    number = text.removeprefix("stash").removeprefix("@{").removesuffix("}") or "0"
    if text.startswith("stash@{") and not number.isdecimal():
        raise _UnknownError  # such as stash@{yesterday}
    return f"stash@{{{int(number)}}}" if number.isdecimal() else ""


def _step(call: _Call) -> list[GitAction]:
    """Commands that replay commits: a step of a running one, or a new one."""
    verb, repository = call.verb, call.repository
    if call.has("quit", "edit-todo", "show-current-patch", "dry-run"):
        return []
    if call.has("abort", "skip"):
        return [call.action("discards", "sc" if verb == "rebase" else "s", flag=call.flag("abort", "skip"))]
    if call.has("continue", "resolved"):
        return [call.action("includes", "s", flag=" --continue")]
    rebases = verb == "rebase" or (call.has("rebase") and call.value("rebase") not in _FALSE)
    if verb == "pull" and not call.has("rebase", "no-rebase"):
        rebases = repository.is_set("pull.rebase")
    stashes = call.has("autostash") or repository.is_set(f"{'rebase' if rebases else 'merge'}.autostash")
    if stashes and verb in ("rebase", "pull", "merge") and not call.has("no-autostash"):
        return [call.action("discards", "sc", flag=" --autostash")]
    return [call.action("moves", "scu"), *([call.unknown()] if call.has("exec") else [])]


def _submodule(call: _Call) -> list[GitAction]:
    verb, *words = call.operands or ["status"]
    call.verb = f"submodule {verb}"
    if verb == "foreach":
        inner: list[str | None] = [*call.typed[call.typed.index("foreach") + 1 :]]
        while inner and (inner[0] or "").startswith("-"):
            inner.pop(0)
        inner = _split(_known(inner[0])) if len(inner) == 1 else inner
        if inner[:1] != ["git"] or {"&&", "||", ";", "|"} & set(inner):
            return [call.unknown()]
        modules = call.repository.submodules()
        return [action for module in modules for action in _read(list(inner[1:]), module, MAX_ALIASES)]
    if verb not in ("update", "deinit") or not (call.has("force") or verb == "update"):
        return []
    kinds = "scui" if verb == "deinit" else "sc"
    effect: Effect = "discards" if call.has("force") else "moves"
    return _in_submodules(call, effect, kinds, list(map(_known, [*words, *(call.rest or ())])))


def _in_submodules(
    call: _Call, effect: Effect = "discards", kinds: str = "sc", words: Sequence[str | None] | None = None
) -> list[GitAction]:
    """What a command does in submodules. `words`: those that it names, None: a command that reaches them by option."""
    is_recursive = call.has("recurse-submodules") or call.repository.is_set("submodule.recurse")
    if words is None and (call.has("no-recurse-submodules") or not is_recursive):
        return []
    return [_Call(call.verb, (), "", it).action(effect, kinds) for it in call.repository.submodules(words or ())]


def _read_rare(call: _Call) -> list[GitAction]:
    """Commands that are rare in what agents type."""
    words, moves = call.words(), call.action("moves", "scu")
    first = words[0] if words else ""
    match call.verb:
        case "bisect":
            reads = first in ("", "log", "view", "visualize", "help", "terms")
            return [] if reads else [moves, *([call.unknown()] if first == "run" else [])]
        case "branch" if call.has("D") or (call.has("delete") and call.has("force")):
            branches = [call.action("discards", branch=name, flag=" -D") for name in words if name]
            return [] if call.has("remotes", "all") else branches + [call.unknown()] * (None in words)
        case "checkout-index" if call.has("force") and not call.has("prefix", "temp"):
            limits, names = [] if call.has("all") else words, call.repository.names(words)
            if not words and not call.has("all"):
                return [call.unknown()]
            return call.limited(limits, "discards", "c", "checkout -- {own}", names=names)
        case "filter-branch":
            return [moves]
        case "merge-file" if not call.has("stdout"):
            return [call.action("discards", names=call.repository.names(words[:1]))]
        case "read-tree" if not call.has("dry-run", "index-output"):
            if call.has("u") and call.has("reset"):
                return [call.action("discards", "sc", flag=" --reset -u", tree=_known(first))]
            return [moves if call.has("u") else call.action("moves", "sc")]
        case "reflog" if first == "delete" and not call.has("dry-run"):
            return [call.action("discards", stash=entry) for entry in map(_entry, words[1:]) if entry]
        case "reflog" if first == "expire" and call.has("expire", "expire-unreachable") and not call.has("dry-run"):
            is_stash = call.has("all") or not {"stash", "refs/stash"}.isdisjoint(words)
            return [call.action("discards", stash="*")] if is_stash else []
        case "sparse-checkout" if first not in ("", "list"):  # set removes files that are as in the index
            return [call.action("discards", "s")] if first in ("set", "init", "reapply") else [moves]
        case "symbolic-ref" if first == "HEAD" and len(words) > 1:
            return [moves]
        case "update-index" if words or call.has("stdin", "index-info", "again"):
            words = [] if call.has("again") else words or [None]
            return call.limited(words, "includes", "cu" if call.has("add") else "c")
        case "update-ref":
            return _update_ref(call, "" if first is None or call.has("stdin") else first)
        case "worktree" if first in ("remove", "move") and words[1:]:
            word, (path, *_) = _known(words[1]), call.repository.names(words[1:2], with_folders=True)
            return [call.action("discards", worktree=path if os.path.isdir(path) else word, flag=f" {first}")]
    return []


def _update_ref(call: _Call, ref: str) -> list[GitAction]:
    if not ref:
        return [call.unknown()]
    if call.has("d") and ref == "refs/stash":
        return [call.action("discards", stash="*", flag=" -d")]
    if call.has("d") and ref.startswith("refs/heads/"):
        return [call.action("discards", branch=ref.removeprefix("refs/heads/"), flag=" -d")]
    return [call.action("moves", "scu")] if ref == "HEAD" else []


_READERS: Final[dict[str, Callable[[_Call], list[GitAction]]]] = {
    **dict.fromkeys(("add", "stage"), _add),
    **dict.fromkeys(("am", "cherry-pick", "merge", "pull", "rebase", "revert"), _step),
    "checkout": _checkout,
    "clean": _clean,
    "commit": _commit,
    "mv": _mv,
    "reset": _reset,
    "restore": _restore,
    "rm": _rm,
    "stash": _stash,
    "submodule": _submodule,
    "switch": _switch,
}


def concerns(action: GitAction, status: str) -> bool:
    """Whether a file with these two letters is among the kinds that the action concerns."""
    if status in ("??", "!!"):
        return ("untracked" if status == "??" else "ignored") in action.kinds
    if action.keeps_added and status in ("A ", "AM", "AD"):
        return False
    return ("staged" in action.kinds and status[0] != " ") or ("changed" in action.kinds and status[1] != " ")


def stash_entries(log: str) -> list[str]:
    """The commits of `stash@{0}`, `stash@{1}` …, from the text of `logs/refs/stash` in git's common folder."""
    return [line.split(" ", 2)[1] for line in reversed(log.split("\n")) if line.count(" ") > 1]


def parse_config(output: bytes) -> dict[str, str]:
    """What `git config --list -z` prints, by lower-case name; the last value counts."""
    entries = (entry.partition("\n") for entry in os.fsdecode(output).split("\0") if entry)
    return {name.lower(): value if equals else "true" for name, equals, value in entries}


def judge(action: GitAction, works: Sequence[OthersWork], own: Sequence[str]) -> Judgement | None:
    """What the agent is shown about a command over the works of other sessions; None: it runs, silently. `own`: the
    files that remain for it, among those that the action concerns. Paths are best absolute: they are shown, and named
    in commands, relative to the folder of the command."""
    live = [work for work in works if work.is_live]
    start, listed = f"holdlog: {_shown(action.name)}", _list(live or works, action.folder)
    if not live:
        text = f"{start} takes in changes of an ended session: {listed}."
        return Judgement(False, text) if works and action.effect == "includes" else None
    if action.effect == "moves":
        has_remedy = action.narrower and "{" not in action.narrower
        remedy = f" Run `{action.narrower}` for a separate folder." if has_remedy else ""
        return Judgement(False, f"{start} runs below uncommitted work of another session: {listed}.{remedy}")
    start += f" would take {'away' if action.effect == 'discards' else 'in'} work of another session: {listed}."
    texts = [f"{start} {remedy} A person can run this in a terminal." for remedy in _remedies(action, live, own)]
    return Judgement(True, next((text for text in texts if len(text) <= MAX_TEXT), texts[-1]))


def _remedies(action: GitAction, live: Sequence[OthersWork], own: Sequence[str]) -> list[str]:
    """What the agent can do instead, the best first; the last one is short."""
    narrower = action.narrower
    if "{" not in narrower:
        return [*([f"Run `{narrower}` instead."] if narrower else []), "Wait until it is committed."]
    if not own:
        return ["It concerns no change of yours."]
    paths, others = ([_relative(path, action.folder) for path in each] for each in (own, [it.path for it in live]))
    choices = [[_spec(path) for path in paths]]
    if "{paths}" in narrower:
        choices.append([*action.pathspecs, *(_spec(path, excludes=True) for path in others)])
    specs = sorted((" ".join(map(_quote, words)) for words in choices), key=len)
    is_plain = all(path.isprintable() for path in (*paths, *others))
    commands = [narrower.replace("{paths}", each).replace("{own}", each) for each in specs if is_plain]
    last = "Name only your own files; holdlog claims --dirty lists them."
    if " commit " in narrower:
        last = "Run `holdlog commit -m …` instead, which commits your files only."
    return [*(f"Run `{command}` instead." for command in commands), last]


def _spec(path: str, excludes: bool = False) -> str:
    """A pathspec for this path, or for all but this path."""
    is_pattern = bool(_PATTERN & set(path))
    if not excludes:
        return f":(literal){path}" if is_pattern or path.startswith(":") else path
    is_short = (path[0].isalnum() or path[0] == ".") and not is_pattern
    return f":!{path}" if is_short else f":(exclude,literal){path}"


def _list(works: Sequence[OthersWork], folder: str) -> str:
    parts = [
        f"{_shown(_relative(work.path, folder))} ({_shown(work.agent)}, for {_duration(work.seconds)})"
        for work in works[:MAX_LISTED]
    ]
    return ", ".join(parts) + (f" and {len(works) - MAX_LISTED} more" if len(works) > MAX_LISTED else "")


def _relative(path: str, folder: str) -> str:
    return os.path.relpath(path, folder) if os.path.isabs(path) else path


def _quote(word: str) -> str:
    import shlex  # only few commands need it

    return shlex.quote(word)


def _split(text: str) -> list[str | None]:
    """The words of a text, or none if it cannot be split. Raises _UnknownError."""
    import shlex

    try:
        return list(shlex.split(text))
    except ValueError as error:
        raise _UnknownError from error


def _shown(text: str) -> str:
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _duration(seconds: float) -> str:
    seconds = max(seconds, 0)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
