"""What a shell command does to files, read from its syntax tree.

Standard library only; tree-sitter is imported in the function that parses. Pure but for globs and folders, which are
looked up in the worktree.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from holdlog.adapters.hooks.git import GitCommand

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_COMMAND: Final = 1_000_000
"""Characters of a shell command that is read."""
MAX_CODE: Final = 20_000
"""Characters that are parsed, without here-documents and long quoted texts: the parser is slow on some broken input."""
MAX_STEPS: Final = 5_000
"""Simple commands, counting those of a loop each time."""
MAX_DEPTH: Final = 100
MAX_WORDS: Final = 500
"""Words that braces or a glob result in."""
MAX_PATHS: Final = 1_000
LONG_TEXT: Final = 200
"""Characters of a quoted text that is not parsed."""

UNPARSED: Final = "shell commands are not guarded: tree-sitter cannot be imported"
TOO_LONG: Final = f"a shell command of more than {MAX_COMMAND:,} characters is not guarded"
TOO_COMPLEX: Final = "a shell command that is too complex is not guarded"

READERS: Final = frozenset(
    """: [ [[ ag alias b2sum base64 basename bat batcat bc bg break cal cat cd chgrp chmod chown cksum cmp column comm
    command continue cut date df diff dig dircolors dirname dirs du echo egrep exit expr factor false fg fgrep file fold
    free getconf getent grep groups hash head help hexdump history holdlog host hostname id ifconfig ip jobs join jq kill
    killall last less locale locate ls lsattr lsblk lscpu lsof man md5sum more netstat nl nproc nslookup numfmt od
    paste pgrep ping pkill popd pr printenv printf ps pstree pushd pwd readlink realpath return rev rg rmdir seq sha1sum
    sha224sum sha256sum sha384sum sha512sum sleep ss stat strings stty sum sync tac tail test times top tput tr
    tree true tsort tty type tzset ulimit umask uname unalias uptime users vmstat wait wc whatis whereis which who whoami
    yes zcat zgrep zless""".split()
)
"""Programs that change no file, whatever their arguments are. Modes, owners and folders are no content."""
CHECKERS: Final = frozenset(
    """bandit basedpyright coverage ctest dmypy eslint flake8 hadolint htmlhint javac jest kotlinc markdownlint mocha
    mypy node-gyp oxlint phpstan phpunit py.test pycodestyle pydocstyle pyflakes pylint pyright pytest rspec shellcheck
    staticcheck stylelint tsc ty unittest vitest vue-tsc vulture yamllint actionlint""".split()
)
"""Compilers, linters and test runners: they change no source, unless an option says so."""
COMPILERS: Final = frozenset("c++ cc clang clang++ g++ gcc ghc ocamlc rustc".split())
_VERBS: Final = {
    "bun": "test",
    "bundle": "check list",
    "cargo": "b bench build c check clippy doc metadata nextest t test tree",
    "deno": "check lint test",
    "dotnet": "build test",
    "go": "build doc env list test version vet",
    "gradle": "build check test",
    "mix": "compile test",
    "mvn": "compile test verify",
    "npm": "ls outdated t test view",
    "pip": "check freeze list show",
    "pip3": "check freeze list show",
    "pnpm": "ls outdated t test",
    "ruff": "check rule version",
    "swift": "build test",
    "yarn": "test",
}
"""Subcommands that are like CHECKERS."""
_WRITING: Final = ("--fix", "--write", "--update", "--snapshot-update", "--in-place", "--inplace", "--add-noqa", "-u")
_DRY: Final = frozenset({"--check", "--diff", "--dry-run", "--list-different"})
_FORMATTERS: Final = frozenset("autopep8 black cargo clang-format isort prettier ruff rustfmt yapf".split())
_QUESTIONS: Final = frozenset({"--version", "--help", "-V", "-h", "-v", "version", "help"})
_WRAPPERS: Final = {
    "builtin": "",
    "busybox": "",
    "bunx": "",
    "caffeinate": "-t -w",
    "chronic": "",
    "command": "",
    "doas": "-u -C",
    "env": "-u --unset -C --chdir -S --split-string",
    "exec": "-a",
    "flock": "-w --wait --timeout -E",
    "ionice": "-c -n",
    "nice": "-n --adjustment",
    "nohup": "",
    "npx": "-p --package",
    "setsid": "",
    "stdbuf": "-i -o -e --input --output --error",
    "sudo": "-u --user -g --group -h --host -p --prompt -C -D --chdir -R -T -U",
    "taskset": "",
    "time": "-f -o --format --output",
    "timeout": "-s --signal -k --kill-after",
    "unbuffer": "",
    "uvx": "--from --with -p --python",
}
"""Programs that run another one, with their options that have a value."""
_FIRST_OPERANDS: Final = {"timeout": 1, "flock": 1, "taskset": 1}
_RUNNERS: Final = {
    "bundle": ("exec",),
    "hatch": ("run",),
    "pdm": ("run",),
    "pipenv": ("run",),
    "pnpm": ("exec", "dlx"),
    "poetry": ("run",),
    "rye": ("run",),
    "uv": ("run",),
    "yarn": ("exec", "dlx"),
}
_RUN_OPTIONS: Final = "-p --python --with --extra --group --package --env-file --directory --project --with-editable"
_OPERANDS: Final = {
    "rm": "",
    "shred": "-n -s --size --iterations",
    "sponge": "",
    "tee": "",
    "truncate": "-s --size -r --reference",
    "unlink": "",
}
"""Programs that change each file that they name, with their options that have a value."""
_OUTPUTS: Final = {
    "curl": (
        "-A -b -c -C -d -D -e -E -F -H -K -m -o -P -Q -r -t -T -u -U -w -x -X -y -Y -z"
        " --output --cookie-jar --dump-header --header --data --output-dir",
        "-o --output -c --cookie-jar -D --dump-header",
    ),
    "dot": ("-o", "-o"),
    "iconv": ("-f -t -o --output", "-o --output"),
    "pandoc": ("-f -t -o --output", "-o --output"),
    "shuf": ("-n -o --output", "-o --output"),
    "sort": ("-k -t -S -T -o --key --field-separator --output", "-o --output"),
    "wget": ("-O -o -a -P -U -t -T -e --output-document --output-file --header", "-O -o --output-document"),
}
"""Programs that write files that options name: the options that have a value, and those that name a file."""
_TRANSFER: Final = {
    "cp": "-t --target-directory -S --suffix",
    "install": "-t --target-directory -S --suffix -m --mode -o --owner -g --group",
    "ln": "-t --target-directory -S --suffix",
    "mv": "-t --target-directory -S --suffix",
    "rsync": "-e --rsh --exclude --include --filter --files-from --exclude-from",
}
_SED: Final = "-e --expression -f --file -l --line-length -i? --in-place?"
_PATCH: Final = "-i --input -p --strip -d --directory -o --output -r --reject-file -B -D -F -V -Y -z"
_GIT_READERS: Final = frozenset(
    "blame cat-file describe diff grep log ls-files merge-base reflog rev-list rev-parse shortlog show status".split()
)
_GIT_PROGRAMS: Final = frozenset({"apply", "bisect", "filter-branch", "submodule"})
"""Git commands that write what a patch or a program says."""
_KEYWORDS: Final = frozenset("case coproc do done elif else esac fi for function if select then until while".split())
_ASSIGNING: Final = frozenset("getopts let mapfile printf read readarray".split())
_NO_FILES: Final = ("/dev/", "/proc/")
_TOPLEVEL: Final = "__toplevel"
_WRITES: Final = frozenset({">", ">>", ">|", "&>", "&>>", ">&"})

_TO_NOWHERE: Final = re.compile(r"(?:\d|&)?>>?\s*/dev/null(?![\w./-])|\d?>&\d(?!\S)")
_SIMPLE_QUOTES: Final = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")
_HEADS: Final = re.compile(r"[;&|\n(){}`]+")
_PLAIN: Final = re.compile(r"[\w@%+=:,./ \t;|&\n-]+")
_CODE: Final = re.compile(
    r"""\\.|'[^']*'|\$'(?:[^'\\]|\\.)*'|"[^"$`\\]*"|\$?"|`|\$?\(\(|[$<>]?\(|\)|\$\{|\}|<<<|<<-?|<>|\n"""
    r"""|(?<![^\s;&|()])\#[^\n]*"""
    r"""|(?<![^\s;&|(])(?:(?:time(?:[ \t]+-p)?|coproc)[ \t]+(?=\{\s|\(|(?:for|while|if|until|case|select)\s)"""
    r"""|![ \t]+(?=\{\s))""",
    re.DOTALL,
)
"""What matters outside of double quotes: the last ones are keywords that the grammar does not know."""
_IN_QUOTES: Final = re.compile(r"""\\.|"|`|\$\(\(?|\$\{|\}""", re.DOTALL)
_DELIMITER: Final = re.compile(r"""[ \t]*((?:'[^'\n]*'|"[^"\n]*"|\\.|[^\s;&|<>()'"\\`])+)""")
_LINES: Final = re.compile(r"[;\n]")
_MARK: Final = "\x01"
_BRACE: Final = re.compile(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*"|\$\{[^}]*\}|[{},]""", re.DOTALL)
_RANGE: Final = re.compile(r"(-?(?:0|[1-9]\d*))\.\.(-?(?:0|[1-9]\d*))|([a-zA-Z])\.\.([a-zA-Z])")
_KNOWN_OUTPUT: Final = re.compile(
    r"\$\(\s*(pwd|git rev-parse --show-toplevel)\s*\)|`(pwd|git rev-parse --show-toplevel)`"
)
_PIECE: Final = re.compile(
    r"""\\(?P<escaped>.)|'(?P<single>[^']*)'|\$'(?P<ansi>(?:[^'\\]|\\.)*)'|"(?P<double>(?:[^"\\`$]|\\.|\$(?!\())*)\""""
    r"""|\$(?P<name>\w+|[@*\#?$!-])|\$\{(?P<braced>\w+|[@*])\}|(?P<glob>[*?\[])|(?P<plain>[^\\'"$`*?\[()]+|\$(?![\w({@*\#?$!'"-]))""",
    re.DOTALL,
)
_IN_DOUBLE: Final = re.compile(r"""\\([$`"\\\n])|\$(\w+|[@*\#?$!-])|\$\{(\w+)\}|(\$\{)""")
_ANSI: Final = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_ANSI_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\033"}
_SED_SUBSTITUTE: Final = re.compile(r"[sy](\W)(?:\\.|(?!\1).)*\1(?:\\.|(?!\1).)*\1(\w*)|/(?:\\.|[^/\\])*/", re.DOTALL)
_SED_WRITES: Final = re.compile(r"(?:^|[\s;{}\d$!,])[weW]\s+\S")
_AWK_FILES: Final = re.compile(r'>>?\s*"([^"]*)"')
_AWK_WRITES: Final = re.compile(r'>>?\s*[(a-zA-Z$]|system\s*\(|\|\s*"')
_PERL_FLAGS: Final = re.compile(r"-(?:[acnpsStTuUwWXh]|0x[0-9a-fA-F]+|[0l][0-7]*)*")
_DIFF: Final = re.compile(r"^--- ([^\t\n]+).*\n\+\+\+ ([^\t\n]+)", re.MULTILINE)


class ShellReading(NamedTuple):
    """What a shell command does to files. `paths`: that it certainly changes, absolute. `git`: its git commands.
    `reports`: it may change files that nobody can name beforehand, so they are compared afterwards. `problem`: why it
    could not be read, in one line."""

    paths: tuple[str, ...] = ()
    git: tuple[GitCommand, ...] = ()
    reports: bool = False
    problem: str = ""


class _Shell(NamedTuple):
    """What is known of a shell between two commands. `folder`: where it is, None if only the shell knows. `variables`:
    their values, None likewise. `folders`: the stack of pushd."""

    folder: str | None
    variables: Mapping[str, str | None]
    functions: Mapping[str, "Node"]
    arguments: tuple[str | None, ...] | None = ()
    folders: tuple[str | None, ...] = ()

    def value(self, name: str) -> str | None:
        """The value of a variable, None if only the shell knows it."""
        if name == "PWD":
            return self.folder
        if name.isdecimal() and name != "0":
            if self.arguments is None:
                return None
            return self.arguments[int(name) - 1] if int(name) <= len(self.arguments) else ""
        if name == _TOPLEVEL:
            return _toplevel(self.folder)
        if name == "HOME" and name not in self.variables:
            return os.path.expanduser("~")
        return self.variables.get(name)

    def assign(self, name: str, value: str | None) -> "_Shell":
        return self._replace(variables={**self.variables, name: value})


class _Ends(NamedTuple):
    """The shell after a command that succeeded, and after one that failed; None if that cannot be."""

    succeeded: _Shell | None
    failed: _Shell | None

    @property
    def either(self) -> _Shell | None:
        return _join(self.succeeded, self.failed)


class _Text(NamedTuple):
    """A here-document or a long quoted text. `is_literal`: the shell expands nothing in it."""

    text: str
    is_literal: bool


class _Call(NamedTuple):
    """A simple command. `words`: after the program. `stdin`: its text, None if only the shell knows it. `assigned`: the
    variables before it."""

    program: str
    words: list[str | None]
    shell: _Shell
    stdin: str | None
    assigned: Mapping[str, str | None]


class _UnreadableError(Exception):
    """The command cannot be read; the message says why."""


class _UnknownWordError(Exception):
    """Only the shell knows what the word is."""


def read_shell(command: str, folder: str) -> ShellReading:
    """Read a shell command that runs in `folder`, which is absolute."""
    if _is_silent(command):
        return ShellReading()
    reader, problem = _Reader(), ""
    shell = _Shell(folder, {}, {})
    try:
        if not reader.read_plain(command, shell):
            reader.read(command, shell)
    except ImportError:
        problem = UNPARSED
    except _UnreadableError as error:
        problem = str(error)
    except RecursionError:
        problem = TOO_COMPLEX
    paths = tuple(reader.paths)[:MAX_PATHS]
    reports = reader.reports or problem != "" or len(reader.paths) > MAX_PATHS
    return ShellReading(paths, tuple(reader.git), reports, problem)


def _is_silent(command: str) -> bool:
    """Whether each program is one of READERS or reads from git, without output into files, as seen without a parser."""
    if len(command) > MAX_CODE:
        return False
    text = _TO_NOWHERE.sub(" ", _SIMPLE_QUOTES.sub("Q", command))
    if re.search(r"""[>"'\\#]|<<""", text):
        return False
    for part in _HEADS.split(text):
        words = part.split()
        if words and words[0] not in READERS and not _reads_git(words):
            return False
    return True


def _reads_git(words: Sequence[str | None]) -> bool:
    return len(words) > 1 and words[0] == "git" and words[1] in _GIT_READERS and not _has(words, "--output")


def _take_texts(command: str, texts: list[_Text]) -> str:
    """Replace here-documents and long quoted texts by marks, because the grammar knows few forms of here-documents and
    the parser is fast on short input. What is replaced is added to `texts`."""
    pieces, stack, at = list[str](), list[str](), 0
    pending: list[tuple[int, bool, str]] = []
    while True:
        is_quoted = stack[-1:] == ['"'] or stack[-2:] == ['"', "}"]
        match = (_IN_QUOTES if is_quoted else _CODE).search(command, at)
        if match is None:
            break
        pieces.append(command[at : match.start()])
        token, at = match.group(), match.end()
        if token in ("<<", "<<-") and "((" not in stack:
            delimiter = _DELIMITER.match(command, at)
            if delimiter is not None:
                word, at = delimiter.group(1), delimiter.end()
                name = re.sub(r"['\"\\]", "", word)
                pending.append((len(texts), token == "<<-", name))
                texts.append(_Text("", name != word))
                token = f"< '{_MARK}{len(texts) - 1}'"
        elif token == "\n" and pending:
            at = _take_bodies(command, at, pending, texts)
            pending = []
        elif token[0] in "'\"" and len(token) > LONG_TEXT:
            texts.append(_Text(token[1:-1], True))
            token = f"'{_MARK}{len(texts) - 1}'"
        elif token[0] in "tc!" and len(token) > 1:
            token = ""
        pieces.append({"<>": ">", '$"': '"'}.get(token, token))
        _nest(token, stack)
    return "".join(pieces) + command[at:]


def _nest(token: str, stack: list[str]) -> None:
    """Note the brackets and quotes that a token opens or closes."""
    top = stack[-1] if stack else ""
    if token in ('"', '$"', "`"):
        if top == token[-1]:
            stack.pop()
        else:
            stack.append(token[-1])
    elif token in ("((", "$(("):
        stack += ["((", "(("]
    elif token in ("(", "$(", "<(", ">("):
        stack.append("(")
    elif token == "${":
        stack.append("}")
    elif (token == ")" and top in ("(", "((")) or (token == "}" and top == "}"):
        stack.pop()


def _take_bodies(command: str, at: int, pending: Iterable[tuple[int, bool, str]], texts: list[_Text]) -> int:
    """Read the here-documents that begin at a line, and return where the line after them begins. One without an end
    extends to the end of the command, as in a shell."""
    for index, is_indented, name in pending:
        end = re.compile(("^\t*" if is_indented else "^") + re.escape(name) + r"(?:\r?$|(?=\)))", re.MULTILINE)
        match = end.search(command, at)
        stop, after = (match.start(), match.end()) if match else (len(command), len(command))
        body = command[at:stop]
        texts[index] = texts[index]._replace(text=re.sub("^\t+", "", body, flags=re.MULTILINE) if is_indented else body)
        at = min(after + command.startswith("\n", after), len(command))
    return at


def _parse(code: str) -> "Node":
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    parser = Parser(Language(tree_sitter_bash.language()))
    return parser.parse(code.encode(errors="backslashreplace")).root_node


def _text(node: "Node") -> str:
    return (node.text or b"").decode(errors="replace")


def _join(*shells: _Shell | None) -> _Shell | None:
    """What is known of a shell that is one of these."""
    known = [shell for shell in shells if shell is not None]
    if not known:
        return None
    joined = known[0]
    for other in known[1:]:
        if other is joined or other == joined:
            continue
        names = {*joined.variables, *other.variables}
        joined = _Shell(
            folder=joined.folder if joined.folder == other.folder else None,
            variables={it: joined.value(it) if joined.value(it) == other.value(it) else None for it in names},
            functions={it: body for it, body in joined.functions.items() if other.functions.get(it) == body},
            arguments=joined.arguments if joined.arguments == other.arguments else None,
            folders=joined.folders if joined.folders == other.folders else (),
        )
    return joined


def _toplevel(folder: str | None) -> str | None:
    """The worktree of git that contains a folder."""
    while folder is not None and not os.path.exists(os.path.join(folder, ".git")):
        folder = os.path.dirname(folder) if folder != os.path.dirname(folder) else None
    return folder


def _has(words: Iterable[str | None], *beginnings: str) -> bool:
    return any(word is not None and word.startswith(beginnings) for word in words)


def _options(
    words: Sequence[str | None], valued: str, stops: bool = False
) -> tuple[dict[str, str | None], list[str | None]]:
    """Options with their values, and operands, as GNU programs read them. `valued`: the options that have a value,
    with `?` if it can only be attached. `stops`: options end at the first operand."""
    names = valued.split()
    options, operands = dict[str, str | None](), list[str | None]()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--" or (stops and (word is None or not word.startswith("-"))):
            return options, operands + list(words[at if word == "--" else at - 1 :])
        if word is None or word == "-" or not word.startswith("-"):
            operands.append(word)
            continue
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            full = next((it for it in names if len(name) > 3 and it.startswith(name)), name)
            if not equals and full in names and not full.endswith("?"):
                options[full], at = words[at] if at < len(words) else None, at + 1
            else:
                options[full.rstrip("?")] = value
            continue
        for index in range(1, len(word)):
            name, rest = f"-{word[index]}", word[index + 1 :]
            if name in names and not rest:
                options[name], at = words[at] if at < len(words) else None, at + 1
            elif name in names or f"{name}?" in names:
                options[name] = rest
                break
            else:
                options[name] = ""
    return options, operands


def _first(options: Mapping[str, str | None], *names: str) -> str | None:
    return next((options[name] for name in names if name in options), "")


def _braces(word: str) -> list[str]:
    """Expand the braces of a word. Raises _UnknownWordError."""
    depth, start, cuts = 0, 0, list[int]()
    for match in _BRACE.finditer(word):
        token, at = match.group(), match.start()
        if token == "{":
            depth += 1
            if depth == 1:
                start, cuts = at, [at]
        elif token == "," and depth == 1:
            cuts.append(at)
        elif token == "}" and depth:
            depth -= 1
            body = word[start + 1 : at]
            bounds = _RANGE.fullmatch(body)
            if depth or (len(cuts) == 1 and bounds is None):
                continue
            ends = [*cuts[1:], at]
            parts = _range(bounds) if bounds else [word[cut + 1 : end] for cut, end in zip(cuts, ends, strict=True)]
            middles = [middle for part in parts for middle in _braces(part)]
            rests = _braces(word[at + 1 :])
            if len(middles) * len(rests) > MAX_WORDS:
                raise _UnknownWordError
            return [word[:start] + middle + rest for middle in middles for rest in rests]
    return [word]


def _range(bounds: re.Match[str]) -> list[str]:
    low, high = (int(bounds[1]), int(bounds[2])) if bounds[1] else (ord(bounds[3]), ord(bounds[4]))
    if abs(high - low) > MAX_WORDS:
        raise _UnknownWordError
    numbers = range(low, high + 1) if low <= high else range(low, high - 1, -1)
    return [str(number) if bounds[1] else chr(number) for number in numbers]


class _Words:
    """Expands words as a shell does."""

    def __init__(self) -> None:
        self.texts: list[_Text] = []
        self.has_plain_globs = True
        """Whether no option of the shell changed what globs mean."""

    def expand(self, word: str, shell: _Shell) -> list[str | None]:
        """The words that a word results in; None for what only the shell knows."""
        if word.startswith(("<(", ">(")):
            return ["/dev/fd/63"]
        try:
            parts = _braces(word) if "{" in word and "$(" not in word and "`" not in word else [word]
            return [field for part in parts for field in self._fields(part, shell)]
        except _UnknownWordError:
            return [None]

    def value(self, word: str, shell: _Shell) -> str | None:
        """The text of a word that is neither split nor compared with files, such as a value or a here-string."""
        try:
            return "".join(text for text, _ in self._pieces(word, shell))
        except _UnknownWordError:
            return None

    def _fields(self, word: str, shell: _Shell) -> list[str | None]:
        """Split a word without braces, and look its globs up."""
        if word in ("$@", '"$@"', "$*"):
            if shell.arguments is None:
                raise _UnknownWordError
            return list(shell.arguments)
        pieces = self._pieces(word, shell)
        fields: list[list[tuple[str, bool]]] = [[]]
        for text, is_quoted in pieces:
            if is_quoted or not re.search(r"\s", text):
                fields[-1].append((text, is_quoted))
                continue
            if "IFS" in shell.variables:
                raise _UnknownWordError
            for index, part in enumerate(re.split(r"\s+", text)):
                if index:
                    fields.append([])
                fields[-1].append((part, False))
        return [word for field in fields for word in self._match(field, shell)]

    def _match(self, field: Sequence[tuple[str, bool]], shell: _Shell) -> list[str | None]:
        """The files that a field matches; the field itself if it matches none."""
        text = "".join(part for part, _ in field)
        if not text:
            return [""] if any(is_quoted for _, is_quoted in field) else []
        if all(is_quoted or not re.search(r"[*?\[]", part) for part, is_quoted in field):
            return [text]
        import glob  # only globs need it

        pattern = "".join(glob.escape(part) if is_quoted else part for part, is_quoted in field)
        is_odd = not self.has_plain_globs or re.search(r"\[\^|\[\[|\[:|\*\*|[?*+@!]\(", pattern)
        if is_odd or (shell.folder is None and not pattern.startswith("/")):
            raise _UnknownWordError
        names: list[str | None] = []
        for name in glob.iglob(pattern, root_dir=shell.folder):
            names.append(name)
            if len(names) > MAX_WORDS:
                raise _UnknownWordError
        return names or [text]

    def _pieces(self, word: str, shell: _Shell) -> list[tuple[str, bool]]:
        """The parts of a word with whether they are quoted. Raises _UnknownWordError."""
        word = _KNOWN_OUTPUT.sub(lambda it: "${PWD}" if "pwd" in (it[1], it[2]) else f"${{{_TOPLEVEL}}}", word)
        pieces, at = list[tuple[str, bool]](), 0
        if word.startswith("~"):
            user = re.match(r"~[^/]*", word)
            assert user is not None
            home = os.path.expanduser(user[0])
            pieces, at = [(home, True)], user.end()
        while at < len(word):
            match = _PIECE.match(word, at)
            if match is None or match.lastgroup is None:
                raise _UnknownWordError
            at, kind, text = match.end(), match.lastgroup, match[match.lastgroup]
            pieces.append((self._piece(kind, text, shell), kind not in ("name", "braced", "glob", "plain")))
        return pieces

    def _piece(self, kind: str, text: str, shell: _Shell) -> str:
        match kind:
            case "escaped":
                return "" if text == "\n" else text
            case "single" if text.startswith(_MARK):
                return self.texts[int(text[1:])].text
            case "ansi":
                return _ANSI.sub(_read_escape, text)
            case "double":
                return _IN_DOUBLE.sub(lambda it: _read_expansion(it, shell), text)
            case "name" | "braced":
                return _require(shell.value(text))
            case _:
                return text


def _read_escape(match: re.Match[str]) -> str:
    if match[3]:
        if match[3] in "uUc":
            raise _UnknownWordError
        return _ANSI_LETTERS.get(match[3], match[3])
    return chr(int(match[1], 16) if match[1] else int(match[2], 8))


def _read_expansion(match: re.Match[str], shell: _Shell) -> str:
    """What an escape or a variable in double quotes results in."""
    if match[4]:
        raise _UnknownWordError
    if match[1]:
        return "" if match[1] == "\n" else match[1]
    return _require(shell.value(match[2] or match[3]))


def _require(value: str | None) -> str:
    if value is None:
        raise _UnknownWordError
    return value


class _Reader:
    """Reads the statements of a shell, one after the other."""

    def __init__(self) -> None:
        self.paths: dict[str, None] = {}
        self.git: list[GitCommand] = []
        self.reports = False
        self.words = _Words()
        self._output: str | None = None
        """What the last command printed, if that is known."""
        self._folders: dict[str, bool] = {}
        """Paths that the command itself made or removed: whether they are folders now."""
        self._calling: list[str] = []
        self._is_broken = False
        self._depth = self._steps = 0

    def read_plain(self, command: str, shell: _Shell) -> bool:
        """Read commands without quotes, globs and keywords, without a parser. Returns whether it could."""
        text = _TO_NOWHERE.sub(" ", command)
        if len(command) > MAX_CODE or not _PLAIN.fullmatch(text) or re.search(r"\|\||(?<!&)&(?!&)", text):
            return False
        lists = [
            [[it.split() for it in part.split("|")] for part in re.split("&&", line)] for line in _LINES.split(text)
        ]
        lists = [pipelines for pipelines in lists if pipelines != [[[]]]]
        commands = [words for pipelines in lists for pipeline in pipelines for words in pipeline]
        if any(not words or words[0] in _KEYWORDS or "=" in words[0] for words in commands):
            return False
        current: _Shell | None = shell
        for pipelines in lists:
            missed = None
            for pipeline in pipelines:
                if current is not None:
                    ends = self._pipe([partial(self.execute, list(words)) for words in pipeline], current)
                    current, missed = ends.succeeded, _join(missed, ends.failed)
            current = _join(current, missed)
        return True

    def _pipe(self, commands: Sequence[Callable[[_Shell, str | None], _Ends]], shell: _Shell) -> _Ends:
        """Run the commands of a pipeline, each in its shell."""
        ends, stdin = _Ends(shell, shell), None
        for command in commands:
            self._output = None
            ends = command(shell, stdin)
            stdin = self._output
        return ends if len(commands) == 1 else _Ends(shell, shell)

    def read(self, command: str, shell: _Shell) -> _Ends:
        """Read commands in a text. Raises _UnreadableError and ImportError."""
        if len(command) > MAX_COMMAND:
            raise _UnreadableError(TOO_LONG)
        if "\0" in command or _MARK in command:
            raise _UnreadableError(TOO_COMPLEX)
        code = _take_texts(command, self.words.texts)
        if len(code) > MAX_CODE:
            raise _UnreadableError(TOO_COMPLEX)
        was_broken = self._is_broken
        ends = self.run(_parse(code), shell)
        is_broken, self._is_broken = self._is_broken, was_broken
        return _Ends(shell, shell) if is_broken else ends

    def run(
        self, node: "Node", shell: _Shell | None, redirects: Sequence["Node"] = (), stdin: str | None = None
    ) -> _Ends:
        """Run a statement. `redirects`: what the grammar attached to a statement around it, although it belongs to the
        last command."""
        if shell is None or self._is_broken:
            return _Ends(None, None)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _UnreadableError(TOO_COMPLEX)
        try:
            return _STATEMENTS.get(node.type, _Reader._other)(self, node, shell, redirects, stdin)
        finally:
            self._depth -= 1

    def _sequence(self, nodes: Sequence["Node"], shell: _Shell | None) -> _Ends:
        ends = _Ends(shell, shell)
        for index, node in enumerate(nodes):
            before = ends.either
            if not node.is_named or node.type == "comment" or before is None:
                continue
            is_background = index + 1 < len(nodes) and nodes[index + 1].type == "&"
            ends = self.run(node, before)
            if is_background:
                ends = _Ends(before, before)
        return ends

    def _block(self, node: "Node", shell: _Shell, redirects: Sequence["Node"] = (), stdin: str | None = None) -> _Ends:
        """A program, a group, the body of a loop."""
        self._redirect(redirects, shell)
        if node.children and node.children[0].type == "((":
            return self._arithmetic(node, shell)
        return self._sequence(node.children, shell)

    def _subshell(
        self, node: "Node", shell: _Shell, redirects: Sequence["Node"] = (), stdin: str | None = None
    ) -> _Ends:
        self._redirect(redirects, shell)
        self._sequence(node.children, shell)
        return _Ends(shell, shell)

    def _redirected(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        own = [child for child in node.children if child.type.endswith("_redirect")]
        body = next((child for child in node.children if child.is_named and child not in own), None)
        if body is None:
            self._redirect([*own, *redirects], shell)
            return _Ends(shell, shell)
        if any(child.type == "ERROR" for child in node.children):
            return self._break()
        return self.run(body, shell, [*own, *redirects], stdin)

    def _list(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        chain: list[tuple[str, "Node"]] = []
        while node.type == "list":
            chain.append((node.children[1].type, node.children[-1]))
            node = node.children[0]
        ends = self.run(node, shell)
        for index, (operator, right) in reversed([*enumerate(chain)]):
            before = ends.succeeded if operator == "&&" else ends.failed
            after = self.run(right, before, () if index else redirects)
            if operator == "&&":
                ends = _Ends(after.succeeded, _join(ends.failed, after.failed))
            else:
                ends = _Ends(_join(ends.succeeded, after.succeeded), after.failed)
        return ends

    def _pipeline(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        parts = [child for child in node.children if child.is_named and child.type != "comment"]

        def run(part: "Node", shell: _Shell, stdin: str | None) -> _Ends:
            return self.run(part, shell, redirects if part is parts[-1] else (), stdin)

        return self._pipe([partial(run, part) for part in parts], shell)

    def _negated(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        ends = self.run(node.children[-1], shell, redirects, stdin)
        return _Ends(ends.failed, ends.succeeded)

    def _if(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        self._redirect(redirects, shell)
        clauses = [child for child in node.children if child.type in ("elif_clause", "else_clause")]
        before: _Shell | None = shell
        results: list[_Shell | None] = []
        for part in (node, *clauses):
            nodes = [child for child in part.children if child not in clauses]
            then = next((index for index, child in enumerate(nodes) if child.type == "then"), None)
            if then is None:
                results.append(self._sequence(nodes, before).either)
                before = None
            else:
                condition = self._sequence(nodes[:then], before)
                results.append(self._sequence(nodes[then:], condition.succeeded).either)
                before = condition.failed
        after = _join(*results, before)
        return _Ends(after, after)

    def _case(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        self._redirect(redirects, shell)
        results: list[_Shell | None] = [shell]
        for child in node.children:
            if child.type != "case_item":
                self._substitute(child, shell)
                continue
            start = next((index for index, it in enumerate(child.children) if it.type == ")"), 0)
            results.append(self._sequence(child.children[start:], shell).either)
        after = _join(*results)
        return _Ends(after, after)

    def _for(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        self._redirect(redirects, shell)
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if name is None or body is None:
            return self._break()
        values = node.children_by_field_name("value")
        words = [word for value in values for word in self._expand(value, shell)]
        if not values and all(child.type != "in" for child in node.children):
            words = list(shell.arguments) if shell.arguments is not None else [None]
        if None in words or node.children[0].type == "select":
            return self._loop(lambda it: self.run(body, it.assign(_text(name), None)).either, shell)
        before: _Shell | None = shell
        results: list[_Shell | None] = [] if words else [shell]
        for word in words:
            if before is not None:
                before = self.run(body, before.assign(_text(name), word)).either
                results.append(before)
        after = _join(*results)
        return _Ends(after, after)

    def _while(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        self._redirect(redirects, shell)
        body = [child for child in node.children if child.type in ("do_group", "compound_statement")]
        header = [child for child in node.children if child not in body]

        def turn(before: _Shell) -> _Shell | None:
            if node.type == "c_style_for_statement":
                ends = self._arithmetic(node, before)
            else:
                ends = self._sequence(header, before)
            return _join(ends.either, self._sequence(body, ends.either).either)

        return self._loop(turn, shell)

    def _loop(self, turn: Callable[[_Shell], _Shell | None], shell: _Shell) -> _Ends:
        """Run the body of a loop until what is known does not change."""
        for _ in range(3):
            after = _join(shell, turn(shell))
            if after is None or after == shell:
                break
            shell = after
        return _Ends(shell, shell)

    def _define(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        name = node.child_by_field_name("name")
        if name is None:
            return self._break()
        after = shell._replace(functions={**shell.functions, _text(name): node})
        return _Ends(after, after)

    def _call(self, call: _Call) -> _Ends:
        """Run a function. What it assigns may be local, and is unknown afterwards."""
        node, shell = call.shell.functions[call.program], call.shell
        body = node.child_by_field_name("body")
        if body is None or call.program in self._calling:
            return _Ends(shell, shell)
        self._calling.append(call.program)
        ends = self.run(body, shell._replace(arguments=tuple(call.words)), node.children_by_field_name("redirect"))
        self._calling.pop()
        after = ends.either
        if after is None:
            return _Ends(None, None)
        joined = _join(after, shell)
        assert joined is not None
        after = after._replace(arguments=shell.arguments, variables=joined.variables)
        return _Ends(after, after)

    def _arithmetic(self, node: "Node", shell: _Shell) -> _Ends:
        """Variables in an arithmetic expression may change."""
        self._substitute(node, shell)
        for name in re.findall(rb"[A-Za-z_]\w*", node.text or b""):
            if name.decode() in shell.variables:
                shell = shell.assign(name.decode(), None)
        return _Ends(shell, shell)

    def _declare(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        """Assignments, declarations, and what removes variables."""
        self._redirect(redirects, shell)
        is_unset = node.type == "unset_command"
        for child in [node] if node.type == "variable_assignment" else node.children:
            if child.type == "variable_assignment":
                shell = self._assign(child, shell, shell)
            elif child.type == "variable_name" and (is_unset or _text(child) not in shell.variables):
                shell = shell.assign(_text(child), "" if is_unset else None)
            else:
                self._substitute(child, shell)
        return _Ends(shell, shell)

    def _assign(self, node: "Node", shell: _Shell, into: _Shell) -> _Shell:
        """Assign to a variable `into` a shell, as read in another one."""
        self._substitute(node, shell)
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or name.type != "variable_name":
            return into
        is_plain = any(child.type == "=" for child in node.children) and (value is None or value.type != "array")
        known = self.words.value(_text(value) if value else "", shell) if is_plain else None
        return into.assign(_text(name), known)

    def _command(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        if any(child.type == "ERROR" for child in node.children):
            return self._break()
        words: list[str | None] = []
        assigned, files = shell._replace(variables={}), list["Node"]()
        for child in node.children:
            if child.type == "variable_assignment":
                assigned = self._assign(child, shell, assigned)
            elif child.type.endswith("_redirect"):
                files.append(child)
            elif child.type == "subshell":
                self.run(child, shell)
            else:
                words += self._expand(child, shell)
        text, more = self._redirect([*files, *redirects], shell)
        words += more
        if words:
            return self.execute(words, shell, text if text is not None else stdin, assigned.variables)
        after = shell._replace(variables={**shell.variables, **assigned.variables})
        return _Ends(after, after)

    def _expand(self, node: "Node", shell: _Shell) -> list[str | None]:
        self._substitute(node, shell)
        return self.words.expand(_text(node), shell)

    def _redirect(self, nodes: Iterable["Node"], shell: _Shell) -> tuple[str | None, list[str | None]]:
        """Write what redirections write. Returns the text of standard input, if one gives it, and the words behind
        them, which belong to the command."""
        stdin, words = None, list[str | None]()
        for node in nodes:
            if node.type == "heredoc_redirect" or any(child.type == "ERROR" for child in node.children):
                self._break()
                continue
            operator = next((child.type for child in node.children if not child.is_named), "")
            targets = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
            if not targets:
                continue
            if operator in ("<<<", "<"):
                self._substitute(targets[0], shell)
                stdin = self._input(_text(targets[0]), operator, shell)
            else:
                self._write_to(self._expand(targets[0], shell), operator, shell)
            words += [word for target in targets[1:] for word in self._expand(target, shell)]
        return stdin, words

    def _write_to(self, files: Sequence[str | None], operator: str, shell: _Shell) -> None:
        file = files[0] if len(files) == 1 else None
        is_copy = operator == ">&" and file is not None and re.fullmatch(r"\d+-?|-", file)
        if operator in _WRITES and not is_copy:
            self.write(file, shell)

    def _input(self, word: str, operator: str, shell: _Shell) -> str | None:
        """The text that a here-document or a here-string passes."""
        if operator == "<<<":
            text = self.words.value(word, shell)
            return None if text is None else f"{text}\n"
        if not word.startswith(f"'{_MARK}"):
            return None
        text, is_literal = self.words.texts[int(word[2:-1])]
        if is_literal:
            return text
        for command in _find_substitutions(text):
            self.read(command, shell)
        is_plain = not re.search(r"(?<!\\)(?:\\\\)*[$`]", text)
        return re.sub(r"\\([\\$`]|\n)", lambda it: it[1].strip("\n"), text) if is_plain else None

    def _substitute(self, node: "Node", shell: _Shell) -> None:
        """Run the commands within a word."""
        if not re.search(rb"[$<>]\(|`|\$\{", node.text or b""):
            return
        if node.type in ("command_substitution", "process_substitution"):
            self._sequence(node.children, shell)
            return
        for child in node.children:
            self._substitute(child, shell)

    def _other(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        """A test, or what the grammar does not know."""
        if node.type == "ERROR":
            for child in node.children:
                if not child.is_named and child.type not in (";", "\n"):
                    break
                self.run(child, shell)
            return self._break()
        if node.type.endswith("_redirect"):
            self._redirect([node], shell)
        self._redirect(redirects, shell)
        self._substitute(node, shell)
        return _Ends(shell, shell)

    def _break(self) -> _Ends:
        """Stop at what cannot be read: only a shell knows what follows."""
        self.reports = self._is_broken = True
        return _Ends(None, None)

    def execute(
        self,
        words: Sequence[str | None],
        shell: _Shell,
        stdin: str | None = None,
        assigned: Mapping[str, str | None] | None = None,
    ) -> _Ends:
        """Run a simple command."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _UnreadableError(TOO_COMPLEX)
        self._output = None
        name, *rest = words
        if name is None:
            self.reports = True
            return _Ends(shell, shell)
        call = _Call(name, rest, shell, stdin, assigned or {})
        if name in shell.functions:
            return self._call(call)
        call = call._replace(program=re.sub(r"^(python|pypy|pip)[\d.]+$", r"\1", os.path.basename(name)))
        handler = _PROGRAMS.get(call.program)
        if handler is not None:
            ends = handler(self, call)
            return ends if ends is not None else _Ends(shell, shell)
        if call.program in READERS:
            self._output = _read_output(call)
        elif not _changes_nothing(call.program, rest):
            self.reports = True
        return _Ends(shell, shell)

    def path(self, word: str | None, shell: _Shell) -> str | None:
        """The absolute path that a word names, None if only the shell knows it."""
        if not word or (shell.folder is None and not word.startswith("/")):
            return None
        path = os.path.join(shell.folder or "/", word)
        if ".." in path.split("/"):  # behind a symbolic link it is the parent of another folder
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        return os.path.normpath(path)

    def write(self, word: str | None, shell: _Shell) -> None:
        """A file that certainly changes, unless only the shell knows which."""
        path = self.path(word, shell)
        if path is None:
            self.reports |= word != ""
        elif not path.startswith(_NO_FILES) or path.startswith("/dev/shm/"):
            self.paths[path] = None

    def is_folder(self, path: str | None) -> bool:
        """Whether there is a folder, after what the command has done so far."""
        if path is None:
            return False
        if path in self._folders:
            return self._folders[path]
        return os.path.isdir(path) and not any(self._folders.get(it) is False for it in _parents(path))

    def note_folder(self, path: str | None, is_folder: bool) -> None:
        if path is not None:
            self._folders[path] = is_folder


def _parents(path: str) -> Iterable[str]:
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        yield path


def _find_substitutions(text: str) -> Iterable[str]:
    """The commands within a here-document."""
    for match in re.finditer(r"\\.|\$\(|`((?:[^`\\]|\\.)*)`", text, re.DOTALL):
        if match[1]:
            yield match[1]
        elif match[0] == "$(":
            depth, end = 1, match.end()
            while depth and end < len(text):
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
            yield text[match.end() : end - 1]


def _read_output(call: _Call) -> str | None:
    """What a program prints, where that is simple."""
    if call.program == "cat" and not call.words:
        return call.stdin
    if call.program == "echo" and not _has(call.words, "-"):
        words = [word for word in call.words if word is not None]
        return " ".join(words) + "\n" if len(words) == len(call.words) else None
    return None


def _changes_nothing(program: str, words: Sequence[str | None]) -> bool:
    """Whether a program without a reader of its own only checks, compiles or tests."""
    if len(words) == 1 and words[0] in _QUESTIONS:
        return True
    if program in _FORMATTERS and not _DRY.isdisjoint(words):
        return True
    verb = next((word for word in words if word is None or not word.startswith(("-", "+"))), None)
    if program in ("npm", "pnpm", "yarn", "bun") and verb == "run":
        return _has(words[words.index("run") + 1 :][:1], "test")
    return (program in CHECKERS or verb in _VERBS.get(program, "").split()) and not _has(words, *_WRITING)


def _read_cd(reader: _Reader, call: _Call) -> _Ends | None:
    shell, words = call.shell, [word for word in call.words if word not in ("-L", "-P", "-e", "--")]
    is_push = call.program == "pushd"
    if call.program == "popd" or (is_push and not words):
        if call.words or not shell.folders:
            after = shell._replace(folder=None, folders=())
        else:
            rest = shell.folders[1:]
            after = shell._replace(folder=shell.folders[0], folders=(shell.folder, *rest) if is_push else rest)
        return _Ends(after, after)
    word = words[0] if words else shell.value("HOME")
    if word == "-":
        folder = shell.value("OLDPWD")
    elif word is None or (is_push and word.startswith(("+", "-"))) or "CDPATH" in shell.variables:
        folder = None
    elif word.startswith("/") or shell.folder is not None:
        folder = os.path.normpath(os.path.join(shell.folder or "/", word))
    else:
        folder = None
    after = shell._replace(folder=folder).assign("OLDPWD", shell.folder)
    if is_push:
        after = after._replace(folders=(shell.folder, *shell.folders))
    return _Ends(after, None if reader.is_folder(folder) else shell)


def _read_end(reader: _Reader, call: _Call) -> _Ends | None:
    return _Ends(None, None)


def _read_result(reader: _Reader, call: _Call) -> _Ends | None:
    """`true` and `false`."""
    return _Ends(None, call.shell) if call.program == "false" else _Ends(call.shell, None)


def _read_variables(reader: _Reader, call: _Call) -> _Ends | None:
    """Programs that assign to the variables that they name."""
    shell = call.shell
    if call.program != "printf" or "-v" in call.words:
        for word in (*call.words, "REPLY", "MAPFILE", "OPTARG"):
            name = re.match(r"[A-Za-z_]\w*", word or "")
            if name:
                shell = shell.assign(name[0], None)
    return _Ends(shell, shell)


def _read_set(reader: _Reader, call: _Call) -> _Ends | None:
    shell = call.shell
    if call.program == "shift":
        count = int(call.words[0]) if call.words and (call.words[0] or "").isdecimal() else 1 - len(call.words)
        shell = shell._replace(arguments=shell.arguments[count:] if shell.arguments and count >= 0 else None)
    elif call.program == "shopt" or "noglob" in call.words or any(re.match(r"[-+]\w*f", it or "") for it in call.words):
        reader.words.has_plain_globs = False
    elif "--" in call.words:
        shell = shell._replace(arguments=tuple(call.words[call.words.index("--") + 1 :]))
    elif any(it is None or not it.startswith(("-", "+")) for it in call.words[:1]):
        shell = shell._replace(arguments=tuple(call.words))
    return _Ends(shell, shell)


def _read_eval(reader: _Reader, call: _Call) -> _Ends | None:
    words = [word for word in call.words if word is not None]
    if len(words) == len(call.words):
        return reader.read(" ".join(words), call.shell)
    reader.reports = True
    return None


def _read_trap(reader: _Reader, call: _Call) -> _Ends | None:
    command = call.words[0] if len(call.words) > 1 else ""
    if command is None:
        reader.reports = True
    elif command != "-":
        reader.read(command, call.shell)
    return None


def _read_source(reader: _Reader, call: _Call) -> _Ends | None:
    """A script that sets the shell up, as those of virtual environments, changes no file."""
    name = os.path.basename(next(iter(call.words), None) or "")
    reader.reports |= name not in ("activate", "activate.fish", ".bashrc", ".zshrc", ".profile", "nvm.sh", "env")
    return None


def _read_shell(reader: _Reader, call: _Call) -> _Ends | None:
    """`bash -c`, or a shell that reads commands from a here-document."""
    flags, rest = "", list(call.words)
    while rest and (rest[0] or "").startswith(("-", "+")):
        word = rest.pop(0) or ""
        if not word.startswith("--"):
            flags += word[1:]
        if re.fullmatch(r"[-+]\w*[oO]|--(rcfile|init-file)", word) and rest:
            rest.pop(0)
    shell = call.shell._replace(variables=call.assigned, functions={}, folders=(), arguments=())
    if "c" in flags and rest and rest[0] is not None:
        reader.read(rest[0], shell._replace(arguments=tuple(rest[2:])))
    elif not rest and call.stdin is not None:
        reader.read(call.stdin, shell)
    elif list(call.words) != ["--version"]:
        reader.reports = True
    return None


def _read_wrapper(reader: _Reader, call: _Call) -> _Ends | None:
    """A program that runs the one behind it."""
    valued = _RUN_OPTIONS if call.program in _RUNNERS else _WRAPPERS[call.program]
    options, words = _options(call.words, valued, stops=True)
    assigned, shell = dict(call.assigned), call.shell
    folder = _first(options, "-C", "-D", "--chdir", "--directory")
    if folder != "":
        shell = shell._replace(folder=reader.path(folder, shell))
    if call.program in ("env", "sudo"):
        while words and words[0] is not None and re.match(r"\w+=", words[0]):
            name, _, value = words.pop(0).partition("=")  # type: ignore[union-attr]  # not None
            assigned[name] = value
    words = words[_FIRST_OPERANDS.get(call.program, 0) :]
    if call.program == "time" and _first(options, "-o", "--output") != "":
        reader.write(_first(options, "-o", "--output"), shell)
    if "-S" in options or "--split-string" in options or (call.program in ("npx", "flock") and "-c" in options):
        reader.reports = True
    if not words or (call.program == "command" and ("-v" in options or "-V" in options)):
        return None
    if call.program == "uv" and words[0] is not None and _has(call.words, "-m", "--module"):
        words = ["python", "-m", *words]
    ends = reader.execute(words, shell, call.stdin, assigned)
    if call.program == "exec":
        return _Ends(None, None)
    return ends if call.program in ("command", "builtin", "time") else None


def _read_runner(reader: _Reader, call: _Call) -> _Ends | None:
    """A program with a command that runs another one, such as `uv run`."""
    if call.words and call.words[0] in _RUNNERS[call.program]:
        return _read_wrapper(reader, call._replace(words=call.words[1:]))
    reader.reports |= not _changes_nothing(call.program, call.words)
    return None


def _read_xargs(reader: _Reader, call: _Call) -> _Ends | None:
    valued = "-n -P -I -L -d -a -s -E --max-args --max-procs --replace? --delimiter --arg-file --max-lines? -i?"
    options, words = _options(call.words, valued, stops=True)
    mark = options.get("-I") or ("{}" if "-i" in options or "--replace" in options else None)
    if words:
        words = [None if mark and mark in (word or "") else word for word in words]
        reader.execute(words if mark else [*words, None], call.shell)
    return None


def _read_find(reader: _Reader, call: _Call) -> _Ends | None:
    words = call.words
    for index, word in enumerate(words):
        if word == "-delete":
            reader.reports = True
        elif word in ("-fprint", "-fprint0", "-fprintf", "-fls"):
            reader.write(next(iter(words[index + 1 :]), None), call.shell)
        elif word in ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"):
            ends = [at for at, it in enumerate(words) if at > index and it in (";", "+")]
            command = [None if "{}" in (it or "") else it for it in words[index + 1 : ends[0] if ends else None]]
            if call.program != "find" and None not in command:
                command.append(None)
            shell = call.shell._replace(folder=None) if word.endswith("dir") else call.shell
            if command:
                reader.execute(command, shell)
    return None


def _read_python(reader: _Reader, call: _Call) -> _Ends | None:
    """`python -m pytest` is like `pytest`."""
    words = call.words
    at = next((index for index, it in enumerate(words) if it is None or not it.startswith("-") or it == "-m"), 0)
    if words[at : at + 1] == ["-m"] and len(words) > at + 1:
        return reader.execute(words[at + 1 :], call.shell)
    reader.reports |= not _changes_nothing(call.program, words)
    return None


def _read_git(reader: _Reader, call: _Call) -> _Ends | None:
    shell, words = call.shell, list(call.words)
    for variable, option in (("GIT_WORK_TREE", "--work-tree"), ("GIT_DIR", "--git-dir")):
        if variable in call.assigned:
            words = [option, call.assigned[variable], *words]
    _, operands = _options(words, "-C -c --git-dir --work-tree --namespace --exec-path?", stops=True)
    verb = operands[0] if operands else ""
    reader.reports |= (verb in _GIT_PROGRAMS and _DRY.isdisjoint(words)) or verb is None
    reader.reports |= verb == "rebase" and _has(operands, "-x", "--exec")
    for word in operands:
        if word is not None and word.startswith("--output="):
            reader.write(word.partition("=")[2], shell)
    if shell.folder is not None:
        reader.git.append(GitCommand(tuple(words), shell.folder))
    else:
        reader.reports |= not _reads_git(["git", *operands])
    return None


def _read_operands(reader: _Reader, call: _Call) -> _Ends | None:
    options, operands = _options(call.words, _OPERANDS[call.program])
    is_deep = not {"-r", "-R", "-d", "--recursive", "--dir"}.isdisjoint(options)
    for word in operands:
        path = reader.path(word, call.shell)
        if call.program != "rm" or is_deep or not reader.is_folder(path):  # else it fails
            reader.write(word, call.shell)
        if call.program == "rm" and is_deep:
            reader.note_folder(path, False)
    return None


def _read_folders(reader: _Reader, call: _Call) -> _Ends | None:
    """`mkdir` and `rmdir` change no file."""
    for word in _options(call.words, "-m --mode")[1]:
        path = reader.path(word, call.shell)
        reader.note_folder(path, call.program == "mkdir")
        for parent in _parents(path or "/"):
            if call.program == "mkdir" and "-p" in call.words and not reader.is_folder(parent):
                reader.note_folder(parent, True)
    return None


def _read_touch(reader: _Reader, call: _Call) -> _Ends | None:
    """It changes only the time of a file that exists."""
    options, operands = _options(call.words, "-d --date -t -r --reference")
    for word in operands:
        path = reader.path(word, call.shell)
        if "-c" not in options and "--no-create" not in options and not (path and os.path.exists(path)):
            reader.write(word, call.shell)
    return None


def _read_transfer(reader: _Reader, call: _Call) -> _Ends | None:
    """`cp`, `mv`, `install`, `ln`, `rsync`."""
    options, words = _options(call.words, _TRANSFER[call.program])
    if call.program == "install" and ("-d" in options or "--directory" in options):
        return None
    if call.program == "rsync" and (_has(options, "-n", "--dry-run") or (words and ":" in (words[-1] or ""))):
        return None
    goal = _first(options, "-t", "--target-directory")
    is_folder = goal != ""
    if goal == "" and words:
        goal = words.pop() if len(words) > 1 else "." if call.program == "ln" else ""
        is_folder = len(words) > 1 or reader.is_folder(reader.path(goal, call.shell))
    is_folder = is_folder and "-T" not in options and "--no-target-directory" not in options
    flags = {"-n", "-u", "--no-clobber", "--update", "--parents", "--delete"} | ({"--files-from"} & set(options))
    if not flags.isdisjoint(options):
        reader.reports = True
        return None
    for source in words:
        name = os.path.basename((source or "").rstrip("/"))
        if call.program == "rsync" and (source or "").endswith("/"):
            name = "."
        target = goal
        if is_folder and goal is not None:
            target = os.path.join(goal, name) if name and name != ".." else None
        _transfer(reader, call, options, source, target)
    return None


def _transfer(
    reader: _Reader, call: _Call, options: Mapping[str, str | None], source: str | None, target: str | None
) -> None:
    """One source of `cp` or its like."""
    origin, path = reader.path(source, call.shell), reader.path(target, call.shell)
    if call.program == "ln":
        if "-f" in options or "--force" in options or not (path and os.path.lexists(path)):
            reader.write(target, call.shell)
        return
    if call.program == "mv":
        reader.write(source, call.shell)
    is_deep = call.program != "install" and reader.is_folder(origin)
    if not is_deep or not reader.is_folder(path):
        reader.write(target, call.shell)
    elif call.program != "mv" and origin is not None and path is not None:
        _merge(reader, origin, path)
    if is_deep or call.program == "mv":
        reader.note_folder(path, is_deep)
    if call.program == "mv":
        reader.note_folder(origin, False)


def _merge(reader: _Reader, origin: str, path: str) -> None:
    """A folder is copied into one that exists: which files change depends on those in it."""
    files = [os.path.join(folder, name) for folder, _, names in os.walk(origin) for name in names[: MAX_WORDS + 1]]
    if len(files) > MAX_WORDS:
        reader.reports = True
        return
    for file in files:
        reader.paths[os.path.join(path, os.path.relpath(file, origin))] = None


def _read_sed(reader: _Reader, call: _Call) -> _Ends | None:
    options, files = _options(call.words, _SED)
    is_script = {"-e", "--expression", "-f", "--file"}.isdisjoint(options)
    if "-i" in options and files[:1] == [""] and len(files) > 1:
        files = files[1:]  # the suffix of BSD
    scripts = [files.pop(0) if files else None] if is_script else [options.get("-e"), options.get("--expression")]
    for script in filter(None, scripts):
        rest = _SED_SUBSTITUTE.sub(lambda it: " w x " if set(it[2] or "") & set("we") else " ", script)
        reader.reports |= _SED_WRITES.search(rest) is not None
    suffix = _first(options, "-i", "--in-place")
    if "-i" in options or "--in-place" in options:
        for word in files:
            reader.write(word, call.shell)
            if word and suffix:
                head, tail = os.path.split(word)
                backup = suffix.replace("*", tail) if "*" in suffix else tail + suffix
                reader.write(os.path.join(head, backup), call.shell)
    return None


def _read_perl(reader: _Reader, call: _Call) -> _Ends | None:
    """`perl -pi -e` and `ruby -i`; other programs in these languages may write what they like."""
    words, has_code, suffix = list(call.words), False, None
    while words and words[0] is not None and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0) or ""
        flags = _PERL_FLAGS.match(word)
        rest = word[flags.end() :] if flags else ""
        if rest.startswith("i"):
            suffix = rest[1:]
        elif rest.startswith(("e", "E")):
            has_code = True
            if len(rest) == 1 and words:
                words.pop(0)
        elif rest in ("I", "C", "r") and words and call.program == "ruby":
            words.pop(0)
        elif word == "--":
            break
    if suffix is None:
        reader.reports |= not _changes_nothing(call.program, call.words)
        return None
    for operand in words if has_code else words[1:]:
        reader.write(operand, call.shell)
        if suffix and operand:
            reader.write(f"{operand}{suffix}", call.shell)
    return None


def _read_awk(reader: _Reader, call: _Call) -> _Ends | None:
    options, operands = _options(call.words, "-v -F -f -i --include --assign --field-separator --file")
    has_file = "-f" in options or "--file" in options
    if _first(options, "-i", "--include") == "inplace":
        for word in operands if has_file else operands[1:]:
            reader.write(word, call.shell)
    program = operands[0] if operands and not has_file else None
    reader.reports |= has_file or (program is not None and _AWK_WRITES.search(program) is not None)
    for name in _AWK_FILES.findall(program or ""):
        reader.write(name, call.shell)
    return None


def _read_outputs(reader: _Reader, call: _Call) -> _Ends | None:
    valued, outputs = _OUTPUTS[call.program]
    options, operands = _options(call.words, valued)
    is_fetch = call.program == "wget" and _first(options, "-O", "--output-document") == ""
    reader.reports |= is_fetch and "--spider" not in options
    for name in outputs.split():
        if name in options and options[name] != "-":
            file = options[name]
            if name in ("-o", "--output") and options.get("--output-dir") and file:
                file = os.path.join(options["--output-dir"] or "", file)
            reader.write(file, call.shell)
    if call.program == "curl" and ("-O" in options or "--remote-name" in options):
        for url in operands:
            reader.write(os.path.basename(re.sub(r"[?#].*", "", url)) if url else None, call.shell)
    return None


def _read_compiler(reader: _Reader, call: _Call) -> _Ends | None:
    for index, word in enumerate(call.words):
        if word == "-o":
            reader.write(next(iter(call.words[index + 1 :]), None), call.shell)
        elif word is not None and word.startswith("-o"):
            reader.write(word[2:], call.shell)
    return None


def _read_second(reader: _Reader, call: _Call) -> _Ends | None:
    """Programs whose second operand is written: `uniq`, `xxd`."""
    for word in _options(call.words, "-f -s -w -c -l -o -g -n")[1][1:2]:
        reader.write(word, call.shell)
    return None


def _read_dd(reader: _Reader, call: _Call) -> _Ends | None:
    reader.reports |= None in call.words
    for word in call.words:
        if word is not None and word.startswith("of="):
            reader.write(word[3:], call.shell)
    return None


def _read_tar(reader: _Reader, call: _Call) -> _Ends | None:
    first = next(iter(call.words), None)
    words = [f"-{first}", *call.words[1:]] if first and not first.startswith("-") else call.words
    options, _ = _options(words, "-f --file -C --directory -T -X -b --exclude --transform --strip-components")
    is_read = not {"-t", "--list", "-O", "--to-stdout"}.isdisjoint(options)
    is_written = not {"-c", "--create", "-r", "--append", "-u", "--update", "-A"}.isdisjoint(options)
    if is_written and _first(options, "-f", "--file") not in ("", "-"):
        reader.write(_first(options, "-f", "--file"), call.shell)
    reader.reports |= not (is_read or is_written) or "--remove-files" in options
    return None


def _read_archive(reader: _Reader, call: _Call) -> _Ends | None:
    """`unzip`, and the programs that replace a file by a compressed one."""
    options, operands = _options(call.words, "-d -x -P -S --suffix")
    if not {"-l", "-t", "-p", "-Z", "-v", "-c", "--stdout", "--list", "--test"}.isdisjoint(options):
        return None
    reader.reports = True
    if call.program != "unzip" and "-k" not in options and "--keep" not in options:
        for word in operands:
            reader.write(word, call.shell)
    return None


def _read_patch(reader: _Reader, call: _Call) -> _Ends | None:
    options, operands = _options(call.words, _PATCH)
    if "--dry-run" in options:
        return None
    folder, output = _first(options, "-d", "--directory"), _first(options, "-o", "--output")
    shell = call.shell if folder == "" else call.shell._replace(folder=reader.path(folder, call.shell))
    strip = _first(options, "-p", "--strip") or ""
    if output != "" or operands:
        reader.write(output if output != "" else operands[0], shell)
    elif call.stdin is None:
        reader.reports = True
    else:
        for name in {name for pair in _DIFF.findall(call.stdin) for name in pair} - {"/dev/null"}:
            parts = name.rstrip("\r ").split("/")
            reader.write("/".join(parts[int(strip) :]) if strip.isdecimal() else parts[-1], shell)
    return None


def _read_apply_patch(reader: _Reader, call: _Call) -> _Ends | None:
    from holdlog.adapters.hooks.files import patched  # which imports this file in a function

    patch = call.words[0] if call.words else call.stdin
    reader.reports |= patch is None
    for name in patched(patch or ""):
        reader.write(name, call.shell)
    return None


_STATEMENTS: Final = {
    "c_style_for_statement": _Reader._while,
    "case_statement": _Reader._case,
    "command": _Reader._command,
    "compound_statement": _Reader._block,
    "declaration_command": _Reader._declare,
    "do_group": _Reader._block,
    "for_statement": _Reader._for,
    "function_definition": _Reader._define,
    "if_statement": _Reader._if,
    "list": _Reader._list,
    "negated_command": _Reader._negated,
    "pipeline": _Reader._pipeline,
    "program": _Reader._block,
    "redirected_statement": _Reader._redirected,
    "subshell": _Reader._subshell,
    "unset_command": _Reader._declare,
    "variable_assignment": _Reader._declare,
    "variable_assignments": _Reader._declare,
    "while_statement": _Reader._while,
}
_PROGRAMS: Final[Mapping[str, Callable[[_Reader, _Call], _Ends | None]]] = {
    **dict.fromkeys(_WRAPPERS, _read_wrapper),
    **dict.fromkeys(_RUNNERS, _read_runner),
    **dict.fromkeys(_OPERANDS, _read_operands),
    **dict.fromkeys(_OUTPUTS, _read_outputs),
    **dict.fromkeys(_TRANSFER, _read_transfer),
    **dict.fromkeys(_ASSIGNING, _read_variables),
    **dict.fromkeys(COMPILERS, _read_compiler),
    **dict.fromkeys(("cd", "pushd", "popd"), _read_cd),
    **dict.fromkeys(("exit", "logout"), _read_end),
    **dict.fromkeys(("true", "false", ":"), _read_result),
    **dict.fromkeys(("set", "shift", "shopt"), _read_set),
    **dict.fromkeys((".", "source"), _read_source),
    **dict.fromkeys(("bash", "sh", "zsh", "dash", "ksh"), _read_shell),
    **dict.fromkeys(("find", "fd", "fdfind"), _read_find),
    **dict.fromkeys(("python", "pypy"), _read_python),
    **dict.fromkeys(("mkdir", "rmdir"), _read_folders),
    **dict.fromkeys(("sed", "gsed"), _read_sed),
    **dict.fromkeys(("perl", "ruby"), _read_perl),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _read_awk),
    **dict.fromkeys(("uniq", "xxd"), _read_second),
    **dict.fromkeys(("tar", "bsdtar", "gtar"), _read_tar),
    **dict.fromkeys(("unzip", "gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz"), _read_archive),
    **dict.fromkeys(("apply_patch", "applypatch"), _read_apply_patch),
    "dd": _read_dd,
    "eval": _read_eval,
    "git": _read_git,
    "patch": _read_patch,
    "touch": _read_touch,
    "trap": _read_trap,
    "xargs": _read_xargs,
}
