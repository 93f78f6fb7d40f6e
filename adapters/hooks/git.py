"""What a git command does to uncommitted work, and whether that is the work of another session.

Pure, standard library only: functions over the words of a command, a list of dirty files and whose they are. Only whether
a word is a path is looked up below the folder of the command. docs/git.md has the table of commands, and
docs/decisions/0062-git-commands.md the reasons.
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
"""Bytes of a file with pathspecs that are read."""
MAX_ALIASES: Final = 10
"""Aliases of aliases that are followed."""

_KINDS: Final[dict[str, Kind]] = {"s": "staged", "c": "changed", "u": "untracked", "i": "ignored"}
_HEADS: Final = ("", "HEAD", "@")
_PATTERN: Final = frozenset("*?[\\")
_EXCLUDING: Final = (":!", ":^", ":(exclude")
_VALUED: Final = ("--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source")
"""Global options with a value that may be the next word."""
_SELECTING: Final = ("--bare", "--literal-pathspecs", "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs")
_MESSAGES: Final = "m/message= F/file= C/reuse-message= c/reedit-message= fixup= squash= author= date= t/template="
_PATHSPECS: Final = " pathspec-from-file= pathspec-file-nul"
_BRANCHES: Final = (
    " f/force m/merge conflict= d/detach t/track? orphan= recurse-submodules? overwrite-ignore ours theirs"
)
_OPTIONS: Final = {
    "add": "A/all u/update n/dry-run p/patch i/interactive e/edit f/force renormalize refresh chmod=" + _PATHSPECS,
    "branch": "d/delete f/force r/remotes a/all D m/move M c/copy C u/set-upstream-to= contains= merged= sort= format=",
    "checkout": "b= B= p/patch 2/ours 3/theirs" + _BRANCHES + _PATHSPECS,
    "checkout-index": "a/all f/force prefix= stage= temp stdin",
    "clean": "n/dry-run f/force i/interactive d e/exclude= x X",
    "commit": _MESSAGES + " a/all i/include o/only p/patch interactive amend dry-run short porcelain long z/null"
    " cleanup= trailer= S/gpg-sign? u/untracked-files?" + _PATHSPECS,
    "merge-file": "p/stdout L= marker-size=",
    "mv": "n/dry-run f/force k",
    "pull": "r/rebase? autostash dry-run",
    "read-tree": "u m i n/dry-run reset empty prefix= index-output= exclude-per-directory=",
    "rebase": "abort skip quit continue autostash edit-todo show-current-patch x/exec= s/strategy= X/strategy-option=",
    "reflog": "all n/dry-run expire= expire-unreachable=",
    "reset": "hard merge keep soft mixed p/patch recurse-submodules?" + _PATHSPECS,
    "restore": "s/source= S/staged W/worktree p/patch conflict=" + _PATHSPECS,
    "rm": "n/dry-run f/force r cached" + _PATHSPECS,
    "stash": "p/patch S/staged k/keep-index u/include-untracked a/all m/message= q/quiet index" + _PATHSPECS,
    "submodule": "f/force all recursive reference= filter= depth= j/jobs= b/branch= name=",
    "switch": "c/create= C/force-create= discard-changes" + _BRANCHES,
    "update-index": "add remove force-remove refresh really-refresh cacheinfo= chmod= index-version= stdin index-info",
    "update-ref": "d m= stdin create-reflog no-deref z",
    "worktree": "f/force n/dry-run",
}
"""The options that matter, and all that have a value (`=`, or `?`: only if attached), as short/long."""
_STEPS: Final = "abort skip quit continue r/resolved autostash edit-todo show-current-patch"
_READS: Final = frozenset(
    "annotate archive bitmap blame bugreport bundle cat-file check-attr check-ignore check-mailmap check-ref-format cherry"
    " clone column commit-graph commit-tree config count-objects credential daemon describe diagnose diff diff-files"
    " diff-index diff-tree fast-export fast-import fetch fetch-pack fmt-merge-msg for-each-ref format-patch fsck gc"
    " get-tar-commit-id grep gui gitk hash-object help index-pack init init-db instaweb interpret-trailers log ls-files"
    " ls-remote ls-tree mailinfo mailsplit maintenance merge-base merge-tree mktag mktree multi-pack-index name-rev notes"
    " pack-objects pack-redundant pack-refs patch-id prune prune-packed push range-diff remote repack replace request-pull"
    " rerere rev-list rev-parse send-email send-pack shortlog show show-branch show-index show-ref status stripspace tag"
    " unpack-file unpack-objects update-server-info upload-pack var verify-commit verify-pack verify-tag version"
    " whatchanged write-tree apply".split()
)
"""Commands that leave worktree and index alone, except for `--output`. The shell reads `apply`, which is *report*."""


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
    run. `config`: of the repository, by lower-case name, such as `rebase.autostash` and `alias.co`; it is read only
    where it matters.

    Words that only a shell knows do not make a denial: what the others leave certain is returned, with one action that
    `is_unknown`. A word that may be a branch or a deleted file is both: `moves`, and `discards` limited to this file.
    """
    return tuple(_read(list(command.words), _Repository(command.folder, config), MAX_ALIASES))


class _Repository:
    """Where git runs, as its global options select it."""

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
            elif name in _VALUED or word in _SELECTING:
                option = f"{name}={value}" if name in _VALUED else word
                self.options += (option,)
                self.typed += [option] * (name in _VALUED)
            elif word in ("-h", "--help", "-v", "--version"):
                return False
        return bool(words)

    def setting(self, name: str) -> str:
        return self._settings.get(name) or self._config.get(name, "")

    def is_set(self, name: str) -> bool:
        return self.setting(name).lower() in ("true", "yes", "on", "1")

    def spell(self, command: str) -> str:
        """As a command for a shell. `command`: without `git`, with placeholders in braces."""
        return " ".join([*(_quote(word).replace("{", "{{").replace("}", "}}") for word in self.typed), command])

    def top(self) -> str:
        """The top of the worktree, as far as the file system shows it."""
        folder = self.folder
        while not os.path.lexists(os.path.join(folder, ".git")):
            if os.path.dirname(folder) == folder:
                return self.folder
            folder = os.path.dirname(folder)
        return folder

    def is_path(self, word: str) -> bool:
        """Whether a word can only be a path: git's rule, without the names of branches."""
        return (
            word.startswith(":")
            or bool(_PATTERN & set(word))
            or word in (".", "..")
            or word.startswith(("./", "../"))
            or os.path.lexists(os.path.join(self.folder, word))
        )

    def names(self, words: Sequence[str | None], with_folders: bool = False) -> tuple[str, ...]:
        """The words that name one file, or one folder, as absolute paths."""
        names = []
        for word in filter(None, words):
            path = os.path.normpath(os.path.join(self.folder, word))
            is_pattern = word.startswith(":") or (_PATTERN & set(word) and not os.path.lexists(path))
            if not is_pattern and (with_folders or not os.path.isdir(path)):
                names.append(path)
        return tuple(names)

    def submodules(self, names: Sequence[str]) -> list["_Repository"]:
        """Those with these paths; all without paths."""
        top = self.top()
        try:
            with open(os.path.join(top, ".gitmodules"), encoding="utf-8", errors="replace") as file:
                lines = [line.partition("=") for line in file.read(MAX_PATHSPECS).splitlines()]
        except OSError:
            return []
        paths = [os.path.join(top, value.strip()) for key, _, value in lines if key.strip() == "path"]
        wanted = self.names(names, with_folders=True)
        return [_Repository(path, self._config) for path in paths if path in wanted or not wanted]


class _UnknownError(Exception):
    """A word that only a shell knows decides what the command does."""


def _known(word: str | None) -> str:
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
        name, equals, value = word.partition("=")
        is_negative = name.startswith("no-")
        name = self._complete(name.removeprefix("no-"))
        if is_negative:
            self.flags.pop(name, None)
            self.flags[f"no-{name}"] = [None]
            return
        self.flags.pop(f"no-{name}", None)
        has_value = not equals and self._longs.get(name) == "="
        self._set(name, (queue.pop(0) if queue else "") if has_value else value)

    def _take_shorts(self, letters: str, queue: list[str | None]) -> None:
        for at, letter in enumerate(letters, 1):
            name, mode = self._shorts.get(letter, (letter, ""))
            attached: str | None = letters[at:]
            if mode == "=" and not attached:
                attached = queue.pop(0) if queue else ""
            self._set(name, attached if mode else "")
            if mode:
                break

    def _set(self, name: str, value: str | None) -> None:
        self.flags[name] = [*self.flags.pop(name, ()), value]  # the last one counts

    def _complete(self, name: str) -> str:
        """The long option that git takes this abbreviation for."""
        names = [long for long in self._longs if long.startswith(name)]
        return names[0] if name not in self._longs and len(names) == 1 else name

    def has(self, *names: str) -> bool:
        return any(name in self.flags for name in names)

    def value(self, name: str) -> str:
        return _known(self.flags[name][-1]) if name in self.flags else ""

    def words(self) -> list[str | None]:
        return [*self.operands, *(self.rest or ())]

    def is_limited(self) -> bool:
        return bool(self.words()) or self.has("pathspec-from-file")

    def action(
        self, effect: Effect, kinds: str = "", pathspecs: Sequence[str] = (), narrower: str = "", **more: Any
    ) -> GitAction:
        """`kinds`: their first letters. `narrower`: without `git`. `flag`: what the name of the command ends with."""
        name, repository = f"git {self.verb}{more.pop('flag', '')}", self.repository
        return GitAction(
            name,
            effect,
            frozenset(_KINDS[letter] for letter in kinds),
            repository.folder,
            repository.options,
            tuple(pathspecs),
            narrower=repository.spell(narrower) if narrower else "",
            **more,
        )

    def unknown(self) -> GitAction:
        return self.action("moves")

    def limited(
        self, words: Sequence[str | None], effect: Effect, kinds: str, narrower: str, **more: Any
    ) -> list[GitAction]:
        """An action over these pathspecs and those of a file; what only a shell knows is unknown."""
        pathspecs = [word for word in words if word is not None]
        is_complete = len(pathspecs) == len(words)
        if self.has("pathspec-from-file"):
            listed = self._listed()
            pathspecs, is_complete = pathspecs + (listed or []), is_complete and listed is not None
        if is_complete:
            return [self.action(effect, kinds, pathspecs, narrower, **more)]
        if all(spec.startswith(_EXCLUDING) for spec in pathspecs):
            return [self.unknown()]
        return [self.action(effect, kinds, pathspecs, narrower, **more), self.unknown()]

    def _listed(self) -> list[str] | None:
        """The lines of the file with pathspecs; None if they cannot be read."""
        path = self.flags["pathspec-from-file"][-1]
        try:
            with open(os.path.join(self.repository.folder, path or "-"), "rb") as file:
                text = os.fsdecode(file.read(MAX_PATHSPECS + 1))
        except OSError:  # also of `-`, the standard input
            return None
        separator = "\0" if self.has("pathspec-file-nul") else "\n"
        lines = [line.removesuffix("\r") for line in text.split(separator) if line]
        is_plain = len(text) <= MAX_PATHSPECS and not any(line.startswith('"') for line in lines)
        return lines if is_plain else None

    def worktree(self, target: str, new: str = "") -> str:
        """The command that makes a worktree for a branch or commit; `new`: for a branch with this name."""
        top, name = self.repository.top(), new or target or "new"
        path = f"{top}-{''.join(letter if letter.isalnum() else '-' for letter in name).strip('-')}"
        words = ["-b", new, path, target] if new else [path, target]
        return "worktree add " + " ".join(_quote(word) for word in words if word).replace("{", "{{").replace("}", "}}")


def _specify(options: str) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Short options with name and kind, long ones with kind."""
    shorts, longs = {}, {}
    for option in options.split():
        mode = option[-1] if option[-1] in "=?" else ""
        short, _, long = option.removesuffix(mode).rpartition("/")
        if len(long) == 1:
            shorts[long] = (long, mode)
        else:
            longs[long] = mode
            if short:
                shorts[short] = (long, mode)
    return shorts, longs


def _read(words: list[str | None], repository: _Repository, aliases: int) -> list[GitAction]:
    try:
        if not repository.take(words):
            return []
    except _UnknownError:
        return [_Call("", (), "", repository).unknown()]
    verb = words[0] or ""
    call = _Call(verb, words[1:], _OPTIONS.get("add" if verb == "stage" else verb, _STEPS), repository)
    reader = _READERS.get(verb)
    if call.has("help") or (verb in _READS and not call.has("output")):
        return []
    if verb in _READS:
        return [call.action("discards", names=repository.names(call.flags["output"]), flag=" --output")]
    if reader is not None:
        try:
            return reader(call)
        except _UnknownError:
            return [call.unknown()]
    alias = repository.setting(f"alias.{verb.lower()}")
    if not alias or alias.startswith("!") or not aliases:
        return [call.unknown()]
    import shlex

    try:
        return _read([*shlex.split(alias), *words[1:]], repository, aliases - 1)
    except ValueError:
        return []


def _add(call: _Call) -> list[GitAction]:
    chooses = call.has("patch", "interactive", "edit")
    if call.has("dry-run", "refresh") or not (call.is_limited() or chooses or call.has("all", "update", "renormalize")):
        return []
    kinds = "c" if call.has("update", "renormalize", "patch", "edit") else "cui" if call.has("force") else "cu"
    force = " -f" if call.has("force") else ""
    return call.limited(call.words(), "includes", kinds, f"add{force} -- {{paths}}", flag=_flag(call, "all", "update"))


def _branch(call: _Call) -> list[GitAction]:
    forced = call.has("D") or (call.has("delete") and call.has("force"))
    if not forced or call.has("remotes", "all"):
        return []
    return [
        call.unknown() if name is None else call.action("discards", branch=name, flag=" -D") for name in call.words()
    ]


def _checkout(call: _Call) -> list[GitAction]:
    operands, rest = call.operands, call.rest
    if rest or call.has("pathspec-from-file"):
        return _checkout_paths(call, operands[:1], rest or [])
    if rest is None and operands and not call.has("b", "B", "orphan", "detach", "track"):
        first = operands[0]
        if first is None:
            return [call.unknown(), *(_checkout_paths(call, [None], operands[1:]) if operands[1:] else ())]
        if call.repository.is_path(first):
            return _checkout_paths(call, [], operands)
        if len(operands) > 1:
            return _checkout_paths(call, [first], operands)
    if call.has("patch"):
        return _checkout_paths(call, operands[:1], [])
    target = _known(operands[0]) if operands else ""
    actions = _switch_to(call, target, call.value("b") or call.value("B") or call.value("orphan"))
    is_maybe_deleted = rest is None and len(operands) == 1 and not call.has("b", "B", "orphan", "detach", "track")
    if is_maybe_deleted and target not in ("-", *_HEADS) and not call.has("force", "merge"):
        actions += call.limited(operands, "discards", "c", "checkout -- {paths}")
    return actions


def _checkout_paths(call: _Call, tree: Sequence[str | None], words: Sequence[str | None]) -> list[GitAction]:
    """`tree`: empty for the index. It may be the first of the words, too: one that is a commit or a deleted file."""
    commit = tree[0] if tree else ""
    source = "TREE" if commit is None else commit
    names = call.repository.names(words if call.rest else [word for word in words if word != source])
    narrower = "" if commit is None else f"checkout {_escape(source)} -- {{paths}}".replace("  ", " ")
    more = {"names": names, "tree": source if commit and commit not in _HEADS else ""}
    return call.limited(words, "discards", "sc" if tree else "c", narrower, **more)


def _switch(call: _Call) -> list[GitAction]:
    new = call.value("create") or call.value("force-create") or call.value("orphan")
    if not call.operands and not new and not call.has("detach"):
        return []
    return _switch_to(call, _known(call.operands[0]) if call.operands else "", new)


def _switch_to(call: _Call, target: str, new: str) -> list[GitAction]:
    """To a branch or commit, or to a new branch from it."""
    narrower = call.worktree("" if target in _HEADS else target, new)
    flag = _flag(call, "force", "discard-changes", "merge")
    if flag:
        tree = "" if target in _HEADS else target
        if not (target or new):
            narrower = "restore --staged --worktree -- {paths}"
        return [call.action("discards", "sc", (), narrower, flag=flag, tree=tree), *_with_submodules(call, "sc")]
    return [call.action("moves", "scu", (), narrower)] if target or new or call.has("detach") else []


def _checkout_index(call: _Call) -> list[GitAction]:
    if not call.has("force") or call.has("prefix", "temp"):
        return []
    if call.has("stdin"):
        return [call.unknown()]
    words = [] if call.has("all") else call.words()
    if not words and not call.has("all"):
        return []
    return call.limited(
        words, "discards", "c", "checkout-index -f -- {own}", names=call.repository.names(words), flag=" -f"
    )


def _clean(call: _Call) -> list[GitAction]:
    repository = call.repository
    is_free = repository.setting("clean.requireforce").lower() in ("false", "no", "off", "0")
    if call.has("dry-run") or not (is_free or call.has("force", "interactive")):
        return []
    kinds = "i" if call.has("X") else "ui" if call.has("x") else "u"
    words, is_at_top = call.words(), repository.top() == repository.folder
    shallow = not words and is_at_top and not call.has("d")
    words = words or ([] if is_at_top else ["."])
    for pattern in call.flags.get("exclude", ()):
        words += _excluded(_known(pattern))
    letters = "".join(letter for letter in "xX" if call.has(letter))
    return call.limited(words, "discards", kinds, f"clean -f{letters} -- {{paths}}", flag=" -f", shallow=shallow)


def _excluded(pattern: str) -> list[str | None]:
    """The pathspecs that leave out what a pattern of .gitignore matches."""
    name = pattern.strip("/")
    deep = "" if "/" in pattern.rstrip("/") else "**/"
    return [f":(exclude,top,glob){deep}{name}", f":(exclude,top,glob){deep}{name}/**"]


def _commit(call: _Call) -> list[GitAction]:
    if call.has("dry-run", "short", "porcelain", "long", "null"):
        return []
    amend = " --amend" if call.has("amend") else " -m …"
    narrower = f"commit{amend} --only -- {{own}}"
    if call.is_limited() and not call.has("include"):
        return call.limited(call.words(), "includes", "sc", narrower, flag=" PATHS")
    if call.is_limited():
        staged = call.action("includes", "s", (), narrower, flag=" --include")
        return [staged, *call.limited(call.words(), "includes", "c", narrower, flag=" --include")]
    if call.has("amend") and call.has("only"):
        return []
    kinds = "sc" if call.has("all", "patch", "interactive") else "s"
    return [call.action("includes", kinds, (), narrower, flag=_flag(call, "all", "amend"))]


def _merge_file(call: _Call) -> list[GitAction]:
    names = call.repository.names(call.words()[:1])
    return [call.action("discards", names=names)] if not call.has("stdout") else []


def _mv(call: _Call) -> list[GitAction]:
    *sources, goal = call.words() or [None]
    if call.has("dry-run") or not call.words():
        return []
    if goal is None or None in sources:
        names = call.repository.names(sources, with_folders=True)
        return [*([call.action("discards", names=names)] if names else []), call.unknown()]
    folder = call.repository.folder
    target = os.path.join(folder, goal)
    goals = [os.path.join(goal, os.path.basename(_known(source).rstrip("/"))) for source in sources]
    if not os.path.isdir(target):
        goals = [goal]
        if os.path.lexists(target) and not call.has("force"):
            return []  # git refuses
    has_folder = any(os.path.isdir(os.path.join(folder, _known(source))) for source in sources)
    words = [f":(literal){word}" if _PATTERN & set(word) else word for word in (*map(_known, sources), *goals)]
    names = call.repository.names([*sources, *goals], with_folders=True)
    return [call.action("discards", "scui" if has_folder else "sc", words, names=names)]


def _read_tree(call: _Call) -> list[GitAction]:
    if call.has("dry-run", "index-output"):
        return []
    if call.has("u") and call.has("reset"):
        return [call.action("discards", "sc", flag=" --reset -u", tree=_known((*call.words(), "")[0]))]
    return [call.action("moves", "scu" if call.has("u") else "s")]


def _reflog(call: _Call) -> list[GitAction]:
    verb, *words = call.words() or ["show"]
    call.verb = f"reflog {verb}"
    if verb not in ("delete", "expire") or call.has("dry-run"):
        return []
    if verb == "delete":
        return [call.action("discards", stash=entry) for entry in map(_entry, words) if entry]
    concerned = call.has("all") or any(word in ("stash", "refs/stash") for word in words)
    return [call.action("discards", stash="*")] if concerned and call.has("expire", "expire-unreachable") else []


def _reset(call: _Call) -> list[GitAction]:
    mode = ([name for name in call.flags if name in ("hard", "merge", "keep", "soft", "mixed")] or [""])[-1]
    operands, rest = call.operands, call.rest
    if mode not in ("hard", "merge", "keep"):
        return _reset_index(call, mode)
    if rest or len(operands) > 1 or call.has("patch", "pathspec-from-file"):
        return []  # git refuses
    target = operands[0] if operands else ""
    is_head, flag = target in _HEADS, f" --{mode}"
    if mode == "hard":
        narrower = (
            "restore --staged --worktree -- {paths}" if is_head or target is None else call.worktree(target or "")
        )
        tree = "" if is_head or target is None else target
        actions = [call.action("discards", "sc", (), narrower, flag=flag, tree=tree)]
        return actions + _with_submodules(call, "sc")
    narrower = f"restore --staged{' --worktree' if mode == 'merge' else ''} -- {{paths}}"
    actions = [call.action("discards", "s", (), narrower, flag=flag)]
    return actions if is_head else [*actions, call.action("moves", "scu", flag=flag)]


def _reset_index(call: _Call, mode: str) -> list[GitAction]:
    """Without changes of files: HEAD moves, or files are unstaged."""
    words, narrower = call.words(), "restore --staged -- {paths}"
    if mode == "soft":
        return [call.action("moves", "scu", flag=" --soft")] if words and words[0] not in _HEADS else []
    if call.rest or call.has("pathspec-from-file"):
        return call.limited(call.rest or [], "moves", "s", narrower)
    if not call.operands or call.operands == ["HEAD"] or call.has("patch"):
        return [call.action("moves", "s", (), narrower)]
    first = _known(call.operands[0])
    if call.repository.is_path(first) or len(call.operands) > 1:
        return call.limited(call.operands, "moves", "s", narrower)
    return [call.action("moves", "scu")]


def _restore(call: _Call) -> list[GitAction]:
    if not (call.is_limited() or call.has("patch")):
        return []
    words, source = call.words(), call.value("source")
    if call.has("staged") and not call.has("worktree"):
        return call.limited(words, "moves", "s", "restore --staged -- {paths}", flag=" --staged")
    flags = [f"--source={source}"] * bool(source) + ["--staged", "--worktree"] * call.has("staged")
    narrower = " ".join(["restore", *map(_escape, flags), "-- {paths}"])
    more = {"names": call.repository.names(words), "tree": "" if source in _HEADS else source}
    return call.limited(words, "discards", "sc" if source or call.has("staged") else "c", narrower, **more)


def _rm(call: _Call) -> list[GitAction]:
    words = call.words()
    if call.has("dry-run") or not call.is_limited():
        return []
    if call.has("cached"):
        return call.limited(words, "includes", "sc", "rm --cached -- {paths}", flag=" --cached")
    names, force = call.repository.names(words, with_folders=True), call.has("force")
    return call.limited(words, "discards", "sc" * force, "rm -f -- {paths}", names=names, flag=" -f" * force)


def _stash(call: _Call) -> list[GitAction]:
    verb = call.operands[0] if call.operands else "push"
    is_whole = verb == "push" and not call.operands
    words = call.words()[1:] if call.operands else call.words()
    call.verb = "stash" if is_whole else f"stash {verb}"
    if verb in ("pop", "drop", "clear", "branch", "apply"):
        entry = (words[1:] if verb == "branch" else words)[:1] or ["0"]
        stash = "" if verb == "apply" else "*" if verb == "clear" else _entry(entry[0])
        moves = [call.unknown()] if verb in ("pop", "branch", "apply") else []
        return [*([call.action("discards", stash=stash)] if stash else []), *moves]
    if verb == "save":
        words = []  # they are the message
    elif verb != "push":
        if not call.has("patch") or verb in ("list", "show", "create", "store"):
            return [] if verb is not None else [call.unknown()]
        words = call.words()
    has_index = call.has("keep-index") and not call.has("no-keep-index")
    kinds = "s" if call.has("staged") else "c" if has_index else "sc"
    kinds += "ui" if call.has("all") else "u" if call.has("include-untracked") else ""
    flags = "".join(
        f" --{flag}" for flag in ("patch", "staged", "keep-index", "include-untracked", "all") if call.has(flag)
    )
    return call.limited(words, "discards", kinds, f"stash push{flags} -- {{paths}}")


def _entry(word: str | None) -> str:
    """An entry of the stash in the form stash@{0}; empty if it is none. Raises _UnknownError."""
    number = _known(word).removeprefix("refs/").removeprefix("stash").removeprefix("@{").removesuffix("}") or "0"
    if number.isdecimal():
        return f"stash@{{{int(number)}}}"
    if "@{" in _known(word) and "stash" in _known(word):
        raise _UnknownError  # such as stash@{yesterday}
    return ""


def _step(call: _Call) -> list[GitAction]:
    """Commands that replay commits: a step of a running one, or a new one."""
    verb, repository = call.verb, call.repository
    if call.has("quit", "edit-todo", "show-current-patch", "dry-run"):
        return []
    if call.has("abort", "skip"):
        return [call.action("discards", "sc" if verb == "rebase" else "s", flag=_flag(call, "abort", "skip"))]
    if call.has("continue", "resolved"):
        return [call.action("includes", "s", flag=" --continue")]
    rebases = (
        verb == "rebase"
        or call.value("rebase") not in ("", "false")
        or (call.has("rebase") and not call.value("rebase"))
    )
    if verb == "pull" and not call.has("rebase", "no-rebase"):
        rebases = repository.setting("pull.rebase").lower() not in ("", "false", "no", "off", "0")
    stashes = verb in ("rebase", "pull", "merge") and not call.has("no-autostash")
    if stashes and (call.has("autostash") or repository.is_set(f"{'rebase' if rebases else 'merge'}.autostash")):
        return [call.action("discards", "sc", flag=" --autostash")]
    unknown = [call.unknown()] if call.has("exec") else []
    return [call.action("moves", "scu"), *unknown]


def _bisect(call: _Call) -> list[GitAction]:
    verb = call.operands[0] if call.operands else "help"
    if verb in ("log", "view", "visualize", "help", "terms"):
        return []
    return [call.action("moves", "scu"), *([call.unknown()] if verb == "run" else [])]


def _move(call: _Call) -> list[GitAction]:
    """What moves HEAD or the files of HEAD, and git refuses over changes."""
    if call.verb == "symbolic-ref" and (len(call.words()) < 2 or call.words()[0] != "HEAD"):
        return []
    return [] if call.words()[:1] in ([], ["list"]) else [call.action("moves", "scu")]


def _submodule(call: _Call) -> list[GitAction]:
    verb, *words = call.operands or ["status"]
    call.verb = f"submodule {verb}"
    if verb == "foreach":
        return _for_each(call, words)
    if verb not in ("update", "deinit"):
        return []
    modules = call.repository.submodules([word for word in words if word])
    actions = [_Call(call.verb, (), "", module) for module in modules]
    if not call.has("force"):
        return [action.action("moves", "scu") for action in actions] if verb == "update" else []
    return [action.action("discards", "scui" if verb == "deinit" else "sc", flag=" --force") for action in actions]


def _for_each(call: _Call, words: Sequence[str | None]) -> list[GitAction]:
    """A command in each submodule: certain if it is one of git."""
    import shlex

    inner = shlex.split(_known(words[0])) if len(words) == 1 else words
    if inner[:1] != ["git"] or {"&&", "||", ";", "|"} & set(inner):
        return [call.unknown()]
    modules = call.repository.submodules(())
    return [action for module in modules for action in _read(list(inner[1:]), module, MAX_ALIASES)]


def _with_submodules(call: _Call, kinds: str) -> list[GitAction]:
    """What a forced command does in submodules, too."""
    if call.has("no-recurse-submodules") or not (
        call.has("recurse-submodules") or call.repository.is_set("submodule.recurse")
    ):
        return []
    modules = call.repository.submodules(())
    return [_Call(call.verb, (), "", module).action("discards", kinds) for module in modules]


def _update_index(call: _Call) -> list[GitAction]:
    if call.has("stdin", "index-info"):
        return [call.unknown()]
    words = call.words()
    return call.limited(words, "includes", "cu" if call.has("add") else "c", "") if words else []


def _update_ref(call: _Call) -> list[GitAction]:
    if call.has("stdin"):
        return [call.unknown()]
    ref, *values = map(_known, call.words() or [""])
    if call.has("d") and ref == "refs/stash":
        return [call.action("discards", stash="*", flag=" -d")]
    if call.has("d") and ref.startswith("refs/heads/"):
        return [call.action("discards", branch=ref.removeprefix("refs/heads/"), flag=" -d")]
    return [call.action("moves", "scu")] if ref == "HEAD" and values else []


def _worktree(call: _Call) -> list[GitAction]:
    verb, *words = call.words() or ["list"]
    call.verb = f"worktree {verb}"
    if verb not in ("remove", "move") or not words:
        return []
    path = os.path.normpath(os.path.join(call.repository.folder, _known(words[0])))
    return [call.action("discards", worktree=path if os.path.isdir(path) else _known(words[0]))]


_READERS: Final[dict[str, Callable[[_Call], list[GitAction]]]] = {
    **dict.fromkeys(("add", "stage"), _add),
    **dict.fromkeys(("am", "cherry-pick", "merge", "pull", "rebase", "revert"), _step),
    **dict.fromkeys(("filter-branch", "sparse-checkout", "symbolic-ref"), _move),
    "bisect": _bisect,
    "branch": _branch,
    "checkout": _checkout,
    "checkout-index": _checkout_index,
    "clean": _clean,
    "commit": _commit,
    "merge-file": _merge_file,
    "mv": _mv,
    "read-tree": _read_tree,
    "reflog": _reflog,
    "reset": _reset,
    "restore": _restore,
    "rm": _rm,
    "stash": _stash,
    "submodule": _submodule,
    "switch": _switch,
    "update-index": _update_index,
    "update-ref": _update_ref,
    "worktree": _worktree,
}


def _flag(call: _Call, *names: str) -> str:
    return next((f" --{name}" for name in names if call.has(name)), "")


def status_arguments(action: GitAction) -> tuple[str, ...]:
    """The arguments of git, run in `action.folder`, that list the dirty files which the action may concern."""
    lists = "no" if action.kinds <= {"staged", "changed"} else "normal" if action.shallow else "all"
    ignored = ("--ignored",) * ("ignored" in action.kinds)
    options = ("--porcelain", "-z", "--no-renames", f"-u{lists}", *ignored)
    return ("--no-optional-locks", *action.options, "status", *options, "--", *action.pathspecs)


def parse_status(output: bytes) -> list[tuple[str, str]]:
    """Path, relative to the top of the worktree, and the two letters of each file in what `status_arguments` print."""
    entries = [entry for entry in os.fsdecode(output).split("\0") if entry and not entry.endswith("/")]
    return [(entry[3:], entry[:2]) for entry in entries]


def concerns(action: GitAction, status: str) -> bool:
    """Whether a file with these two letters is among the kinds that the action concerns."""
    if status in ("??", "!!"):
        return ("untracked" if status == "??" else "ignored") in action.kinds
    if "U" in status or status in ("AA", "DD"):
        return bool(action.kinds & {"staged", "changed"})
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
    if not live:
        if action.effect != "includes" or not works:
            return None
        listed = _list(works, action.folder)
        return Judgement(False, f"holdlog: {_shown(action.name)} takes in changes of an ended session: {listed}.")
    start, listed = f"holdlog: {_shown(action.name)}", _list(live, action.folder)
    if action.effect == "moves":
        return Judgement(False, f"{start} runs below uncommitted work of another session: {listed}.")
    start += f" would take {'away' if action.effect == 'discards' else 'in'} work of another session: {listed}."
    end = "A person can run this in a terminal."
    for remedy in _remedies(action, live, own):
        text = f"{start} {remedy} {end}"
        if len(text) <= MAX_TEXT:
            break
    return Judgement(True, text)


def _remedies(action: GitAction, live: Sequence[OthersWork], own: Sequence[str]) -> list[str]:
    """What the agent can do instead, the best first; the last one is short."""
    narrower, last = action.narrower, "Wait until it is committed."
    if "{paths}" not in narrower and "{own}" not in narrower:
        return [f"Run instead: {_fill(narrower, [])}", last] if narrower else [last]
    if not own:
        return ["It concerns nothing of yours."]
    own = [_relative(path, action.folder) for path in own]
    others = [_relative(work.path, action.folder) for work in live]
    commands = [_fill(narrower, [_spec(path) for path in own])]
    if "{paths}" in narrower:
        commands.append(_fill(narrower, [*action.pathspecs, *(_spec(path, True) for path in others)]))
    is_plain = all(path.isprintable() for path in (*own, *others))
    last = "Name only your own files; holdlog claims --dirty lists them."
    return [*(f"Run instead: {command}" for command in sorted(commands, key=len) if is_plain), last]


def _fill(narrower: str, words: Sequence[str]) -> str:
    paths = " ".join(map(_quote, words))
    return narrower.format(paths=paths, own=paths)


def _spec(path: str, excludes: bool = False) -> str:
    """A pathspec for this path, or for all but this path."""
    is_plain = (path[0].isalnum() or path[0] == ".") and not _PATTERN & set(path)
    if excludes:
        return f":!{path}" if is_plain else f":(exclude,literal){path}"
    return path if is_plain or (path[0] != ":" and not _PATTERN & set(path)) else f":(literal){path}"


def _list(works: Sequence[OthersWork], folder: str) -> str:
    parts = [
        f"{_shown(_relative(work.path, folder))} ({_shown(work.agent)}, for {_duration(work.seconds)})"
        for work in works[:MAX_LISTED]
    ]
    return ", ".join(parts) + (f" and {len(works) - MAX_LISTED} more" if len(works) > MAX_LISTED else "")


def _relative(path: str, folder: str) -> str:
    return os.path.relpath(path, folder) if os.path.isabs(path) else path


def _escape(word: str) -> str:
    """For a shell, within a text with placeholders."""
    return _quote(word).replace("{", "{{").replace("}", "}}") if word else ""


def _quote(word: str) -> str:
    import shlex

    return shlex.quote(word)


def _shown(text: str) -> str:
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _duration(seconds: float) -> str:
    seconds = max(seconds, 0)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
