"""What a shell command does to files, read from its syntax tree.

Standard library only; tree-sitter is imported in the function that parses. Pure but for globs and folders, which are
looked up in the worktree.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdlog.adapters.hooks.git import GitCommand

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_COMMAND: Final = 1_000_000
"""Characters of a shell command that is read."""
MAX_CODE: Final = 20_000
"""Characters without here-documents and long quoted texts: the parser is slow on some broken input."""
LONG_TEXT: Final = 200
"""Characters of a quoted text that is not parsed."""
MAX_STEPS: Final = 5_000
"""Simple commands, counting those of a loop each time."""
MAX_DEPTH: Final = 100
NESTED_READ: Final = 10
"""How much a command within a text, such as that of `bash -c`, adds to the depth."""
MAX_WORDS: Final = 500
"""Words that braces or a glob result in."""
MAX_PATHS: Final = 1_000

UNPARSED: Final = "shell commands are not guarded: tree-sitter cannot be imported"
TOO_LONG: Final = f"a shell command of more than {MAX_COMMAND:,} characters is not guarded"
TOO_COMPLEX: Final = "a shell command that is too complex is not guarded"


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


READERS: Final = _set(
    """: [ [[ ag alias b2sum base64 basename bat batcat bc bg break cal cat cd chgrp chmod chown cksum cmp column comm
    continue cut date df diff dig dirname dirs du echo egrep exit expr factor false fg fgrep file fold free getconf
    getent grep groups hash head help hexdump history holdlog host hostname id ifconfig ip jobs join jq kill killall
    last less locale locate ls lsattr lsblk lscpu lsof man md5sum more netstat nl nproc nslookup numfmt od paste pgrep
    ping pkill popd pr printenv printf ps pstree pushd pwd readlink realpath return rev rg rmdir seq sha1sum sha224sum
    sha256sum sha384sum sha512sum sleep ss stat strings stty sum sync tac tail test times top tput tr tree true tsort
    tty type ulimit umask unalias uname uptime users vmstat wait wc whatis whereis which who whoami yes zcat zgrep"""
)
"""Programs that change no file, whatever their arguments are. Modes, owners and folders are no content."""
CHECKERS: Final = _set(
    """actionlint bandit basedpyright coverage ctest dmypy eslint flake8 hadolint javac jest kotlinc markdownlint mocha
    mypy oxlint phpstan phpunit py.test pycodestyle pydocstyle pyflakes pylint pyright pytest rspec shellcheck
    staticcheck stylelint tsc ty unittest vitest vue-tsc vulture yamllint"""
)
"""Compilers, linters and test runners: they change no source, unless an option says so."""
_VERBS: Final = {
    "bun": "test",
    "cargo": "b bench build c check clippy doc metadata nextest t test tree",
    "deno": "check lint test",
    "dotnet": "build test",
    "go": "build doc env list test version vet",
    "gradle": "build check test",
    "mvn": "compile test verify",
    "npm": "ls outdated t test view",
    "pip": "check freeze list show",
    "pnpm": "ls outdated t test",
    "ruff": "check rule version",
    "swift": "build test",
    "yarn": "test",
}
"""Subcommands that are like CHECKERS."""
_WRITING: Final = ("--fix", "--write", "--update", "--snapshot-update", "--in-place", "--inplace", "--add-noqa", "-u")
_FORMATTERS: Final = _set("autopep8 black cargo clang-format isort prettier ruff rustfmt yapf")
_DRY: Final = _set("--check --diff --dry-run --list-different")
_QUESTIONS: Final = _set("--version --help -V -h -v version help")
_WRAPPERS: Final = {
    "builtin": "",
    "bunx": "",
    "busybox": "",
    "command": "",
    "coproc": "",
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
    "time": "-f -o --format --output",
    "timeout": "-s --signal -k --kill-after",
    "uvx": "--from --with -p --python",
}
"""Programs that run the one behind them, with their options that have a value."""
_RUNNERS: Final = {
    "bundle": "exec",
    "hatch": "run",
    "pdm": "run",
    "pipenv": "run",
    "pnpm": "exec dlx",
    "poetry": "run",
    "uv": "run",
    "yarn": "exec dlx",
}
"""Programs with a subcommand that does so."""
_RUN_OPTIONS: Final = "-p --python --with --extra --group --package --env-file --directory --project --with-editable"


class _Program(NamedTuple):
    """A program whose options and operands name what it writes. `valued`: options that have a value. `outputs`: those
    that name a file. `first`: from which operand on all are written. `silent`: options with which it changes nothing.
    `reports`: without them, it may change others."""

    valued: str = ""
    outputs: str = ""
    first: int | None = None
    silent: str = ""
    reports: bool = False


_COMPILER: Final = _Program("-I -L -l -D -x -o", "-o")
_COMPRESSOR: Final = _Program("-S --suffix", "", 0, "-c -l -t -k --stdout --list --test --keep", True)
_WRITERS: Final = {
    "bzip2": _COMPRESSOR,
    "c++": _COMPILER,
    "cc": _COMPILER,
    "clang": _COMPILER,
    "curl": _Program(
        "-A -b -c -C -d -D -e -E -F -H -K -m -o -P -Q -r -t -T -u -U -w -x -X -y -Y -z --output --cookie-jar --header",
        "-o --output -c --cookie-jar -D",
    ),
    "g++": _COMPILER,
    "gcc": _COMPILER,
    "gunzip": _COMPRESSOR,
    "gzip": _COMPRESSOR,
    "json.tool": _Program("--indent", first=1),
    "rm": _Program(first=0),
    "rustc": _COMPILER,
    "shred": _Program("-n -s --size --iterations", first=0),
    "sort": _Program("-k -t -S -T -o --key --field-separator --output", "-o --output"),
    "sponge": _Program(first=0),
    "tee": _Program(first=0),
    "truncate": _Program("-s --size -r --reference", first=0),
    "uniq": _Program("-f -s -w", first=1),
    "unlink": _Program(first=0),
    "unzip": _Program("-d -x -P", silent="-l -t -p -Z -v", reports=True),
    "wget": _Program(
        "-O -o -a -P -U -t -T -e --output-document --output-file --header",
        "-O -o --output-document",
        silent="-O --output-document --spider",
        reports=True,
    ),
    "xxd": _Program("-c -l -o -g -s", first=1),
    "xz": _COMPRESSOR,
}
_TARGET: Final = "-t --target-directory -S --suffix"
_TRANSFER: Final = {
    "cp": _TARGET,
    "install": f"{_TARGET} -m --mode -o --owner -g --group",
    "ln": _TARGET,
    "mv": _TARGET,
    "rsync": "-e --rsh --exclude --include --filter --files-from --exclude-from",
}
_SED: Final = "-e --expression -f --file -l --line-length -i? --in-place?"
_PATCH: Final = "-i --input -p --strip -d --directory -o --output -r --reject-file -B -D -F -V -Y -z"
_TAR: Final = "-f --file -C --directory -T -X -b --exclude --transform --strip-components"
_XARGS: Final = "-n -P -I -L -d -a -s -E --max-args --max-procs --delimiter --arg-file --replace? -i?"
_GIT_READERS: Final = _set(
    "blame cat-file describe diff grep log ls-files merge-base reflog rev-list rev-parse shortlog show status"
)
_GIT_PROGRAMS: Final = _set("apply bisect filter-branch submodule")
"""Git commands that write what a patch or a program says."""
_ACTIVATIONS: Final = _set("activate .bashrc .zshrc .profile nvm.sh")
"""Scripts that set a shell up and change no file."""
_NO_FILES: Final = r"/dev/(?!shm/)|/proc/"
_TOPLEVEL: Final = "__toplevel"
_WRITES: Final = frozenset({">", ">>", ">|", "&>", "&>>", ">&"})
_MARK: Final = "\x01"
"""What a text that was taken from a command begins with; its number follows."""

_TO_NOWHERE: Final = re.compile(r"(?:\d|&)?>>?\s*/dev/null(?![\w./-])|\d?>&\d(?!\S)")
_SIMPLE_QUOTES: Final = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")
_HEADS: Final = re.compile(r"[;&|\n(){}`]+")
_PREFIX: Final = re.compile(r"\s*(?:(?:\w+=[\w./:-]*|uv run|poetry run|npx|time|python3? -m)\s+)+(?=[\w.-]+(?:\s|$))")
_CODE: Final = (
    r"""(?s)\\.|'[^']*'|\$'(?:[^'\\]|\\.)*'|"[^"$`\\]*"|\$?"|`|\$?\(\(|[$<>]?\(|\)|\$\{|\}|<<<[ \t]*|<<-?|<>|\n"""
    r"""|(?<![^\s;&|()])\#[^\n]*"""
    r"""|(?<![^\s;&|(])(?:(?:time(?:[ \t]+-p)?|coproc)[ \t]+(?=\{\s|\(|(?:for|while|if|until|case|select)\s)"""
    r"""|![ \t]+(?=\{\s))"""
)
"""What matters outside of double quotes: the last ones are keywords that the grammar does not know there."""
_IN_QUOTES: Final = r"""(?s)\\.|"|`|\$\(\(?|\$\{|\}"""
_DELIMITER: Final = r"""[ \t]*((?:'[^'\n]*'|"[^"\n]*"|\\.|[^\s;&|<>()'"\\`])+)"""
_BRACE: Final = r"""(?s)\\.|'[^']*'|"(?:[^"\\]|\\.)*"|\$\{[^}]*\}|\.\.|[{},]"""
_KNOWN: Final = r"\$\(\s*(pwd|git rev-parse --show-toplevel)\s*\)"
_PIECE: Final = (
    r"""(?s)\\(?P<escaped>.)|'(?P<single>[^']*)'|\$'(?P<ansi>(?:[^'\\]|\\.)*)'|"(?P<double>(?:[^"\\`$]|\\.|\$(?!\())*)\""""
    r"""|\$(?P<name>\w+|[@*\#?$!-])|\$\{(?P<braced>\w+|[@*])\}|(?P<glob>[*?\[])|(?P<plain>[^\\'"$`*?\[()]+|\$(?![\w({]))"""
)
_EXPANSION: Final = r"""\\([$`"\\\n])|\$(\w+|[@*\#?$!-])|\$\{(\w+)\}|(\$\{)"""
_ANSI: Final = r"(?s)\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))"
_ANSI_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\033"}
_ODD_GLOB: Final = r"\[\^|\[\[|\[:|\*\*"
"""What Python reads in another way than a shell, or what depends on options of the shell."""
_SED_SUBSTITUTE: Final = r"(?s)[sy](\W)(?:\\.|(?!\1).)*\1(?:\\.|(?!\1).)*\1(\w*)|/(?:\\.|[^/\\])*/"
_SED_WRITES: Final = r"(?:^|[\s;{}\d$!,])[weW]\s+\S"
_AWK_WRITES: Final = r'>>?\s*["(a-zA-Z$]|system\s*\(|\|\s*"'
_PERL_FLAGS: Final = r"-(?:[acnpsStTuUwWXh]|0x[0-9a-fA-F]+|[0l][0-7]*)*(?:(i)(.*)|([eE])(.*))?"
_DIFF: Final = r"(?m)^--- ([^\t\r\n]+).*\n\+\+\+ ([^\t\r\n]+)"


class ShellReading(NamedTuple):
    """What a shell command does to files. `paths`: that it certainly changes, absolute. `git`: its git commands, but for
    those that only read, such as `git status`. `reports`: it may change files that nobody can name beforehand, so they
    are compared afterwards. `problem`: why it could not be read, in one line."""

    paths: tuple[str, ...] = ()
    git: tuple[GitCommand, ...] = ()
    reports: bool = False
    problem: str = ""


class _Shell(NamedTuple):
    """What is known of a shell between two commands. `folder`: where it is, None if only the shell knows. `variables`,
    `arguments`: their values, None likewise. `folders`: the stack of pushd."""

    folder: str | None
    variables: Mapping[str, str | None]
    functions: Mapping[str, "Node"]
    arguments: tuple[str | None, ...] | None = ()
    folders: tuple[str | None, ...] = ()

    def value(self, name: str) -> str | None:
        """The value of a variable, None if only the shell knows it."""
        if name.isdecimal() and name != "0":
            arguments = (None,) * int(name[:2]) if self.arguments is None else self.arguments
            return arguments[int(name) - 1] if int(name) <= len(arguments) else ""
        if name == "HOME" and name not in self.variables:
            return os.path.expanduser("~")
        return self.folder if name == "PWD" else self.variables.get(name)

    def assign(self, name: str, value: str | None) -> "_Shell":
        return self._replace(variables={**self.variables, name: value})


class _Ends(NamedTuple):
    """The shell after a command that succeeded, and after one that failed; None if that cannot be."""

    succeeded: _Shell | None
    failed: _Shell | None

    @property
    def either(self) -> _Shell | None:
        return _join(self.succeeded, self.failed)


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
    try:
        reader.read(command, _Shell(folder, {}, {}))
    except ImportError:
        problem = UNPARSED
    except _UnreadableError as error:
        problem = str(error)
    except RecursionError:
        problem = TOO_COMPLEX
    reports = reader.reports or problem != "" or len(reader.paths) > MAX_PATHS
    return ShellReading(tuple(reader.paths)[:MAX_PATHS], tuple(reader.git), reports, problem)


def _is_silent(command: str) -> bool:
    """Whether no program of the command changes files, as seen without a parser."""
    if len(command) > MAX_CODE:
        return False
    text = _TO_NOWHERE.sub(" ", _SIMPLE_QUOTES.sub("Q", command))
    if re.search(r"""[>"'\\#]|<<""", text):
        return False
    commands = [_PREFIX.sub("", part).split() for part in _HEADS.split(text)]
    return all(not words or words[0] in READERS or _is_harmless(words[0], words[1:]) for words in commands)


def _is_harmless(program: str, words: Sequence[str | None]) -> bool:
    """Whether a program only checks, compiles or tests, or reads from git."""
    if len(words) == 1 and words[0] in _QUESTIONS:
        return True
    if program == "git":
        return bool(words) and words[0] in _GIT_READERS and not _has(words, "--output")
    if program in _FORMATTERS and not _DRY.isdisjoint(words):
        return True
    operands = [word for word in words if word is None or not word.startswith(("-", "+"))]
    if program in ("npm", "pnpm", "yarn", "bun") and operands[:1] == ["run"]:
        return _has(operands[1:2], "test")
    is_verb = bool(operands) and operands[0] in _VERBS.get(program, "").split()
    return (program in CHECKERS or is_verb) and not _has(words, *_WRITING)


def _has(words: Iterable[str | None], *beginnings: str) -> bool:
    return any(word is not None and word.startswith(beginnings) for word in words)


def _take_texts(command: str, texts: list[tuple[str, bool]]) -> str:
    """Replace here-documents and long quoted texts by marks, because the grammar knows few forms of here-documents and
    the parser is fast on short input. Adds to `texts` what is replaced, and whether the shell expands nothing in it."""
    code, in_quotes, delimiters = re.compile(_CODE), re.compile(_IN_QUOTES), re.compile(_DELIMITER)
    pieces, stack, at = list[str](), list[str](), 0
    pending: list[tuple[int, bool, str]] = []
    while True:
        is_quoted = stack[-1:] == ['"'] or stack[-2:] == ['"', "}"]
        match = (in_quotes if is_quoted else code).search(command, at)
        if match is None:
            return "".join(pieces) + command[at:]
        pieces.append(command[at : match.start()])
        token, at = match.group(), match.end()
        delimiter = delimiters.match(command, at) if token in ("<<", "<<-") and "((" not in stack else None
        if delimiter is not None:
            word, at = delimiter.group(1), delimiter.end()
            name = re.sub(r"['\"\\]", "", word)
            pending.append((len(texts), token == "<<-", name))
            texts.append(("", name != word))
            token = f"< '{_MARK}{len(texts) - 1}'"
        elif token.startswith("<<<"):
            token = f"< {_MARK}"
        elif token == "\n" and pending:
            at, pending = _take_bodies(command, at, pending, texts), []
        elif token[0] in "'\"" and len(token) > LONG_TEXT:
            texts.append((token[1:-1], True))
            token = f"'{_MARK}{len(texts) - 1}'"
        elif token[0] in "tc!":
            token = ""
        pieces.append({"<>": ">", '$"': '"'}.get(token, token))
        _nest(token, stack)


def _nest(token: str, stack: list[str]) -> None:
    """Note the brackets and quotes that a token opens or closes."""
    top = stack[-1] if stack else ""
    opened = {"((": ["((", "(("], "$((": ["((", "(("], "(": ["("], "$(": ["("], "<(": ["("], ">(": ["("], "${": ["}"]}
    if token in opened:
        stack += opened[token]
    elif token in ('"', '$"', "`") and top != token[-1]:
        stack.append(token[-1])
    elif token in ('"', "`") or (token == ")" and top in ("(", "((")) or (token == "}" and top == "}"):
        stack.pop()


def _take_bodies(command: str, at: int, pending: Iterable[tuple[int, bool, str]], texts: list[tuple[str, bool]]) -> int:
    """Read the here-documents that begin at a line, and return where the line after them begins. One without an end
    extends to the end of the command, as in a shell."""
    for index, is_indented, name in pending:
        end = re.compile(("^\t*" if is_indented else "^") + re.escape(name) + r"(?:\r?\n|\r?\Z|(?=\)))", re.MULTILINE)
        match = end.search(command, at)
        body = command[at : match.start() if match else len(command)]
        texts[index] = (re.sub("^\t+", "", body, flags=re.MULTILINE) if is_indented else body, texts[index][1])
        at = match.end() if match else len(command)
    return at


def _parse(code: str) -> "Node":
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    parser = Parser(Language(tree_sitter_bash.language()))
    return parser.parse(code.encode(errors="backslashreplace")).root_node


def _text(node: "Node | None") -> str:
    return (node.text or b"").decode(errors="replace") if node is not None else ""


def _join(*shells: _Shell | None) -> _Shell | None:
    """What is known of a shell that is one of these."""
    joined = None
    for shell in shells:
        if joined is None or shell is None or shell is joined or shell == joined:
            joined = joined or shell
            continue
        names = {*joined.variables, *shell.variables}
        joined = _Shell(
            joined.folder if joined.folder == shell.folder else None,
            {name: joined.value(name) if joined.value(name) == shell.value(name) else None for name in names},
            {name: body for name, body in joined.functions.items() if shell.functions.get(name) == body},
            joined.arguments if joined.arguments == shell.arguments else None,
            joined.folders if joined.folders == shell.folders else (),
        )
    return joined


def _toplevel(folder: str | None) -> str | None:
    """The worktree of git that contains a folder."""
    while folder is not None and not os.path.exists(os.path.join(folder, ".git")):
        folder = os.path.dirname(folder) if folder != os.path.dirname(folder) else None
    return folder


def _braces(word: str) -> list[str]:
    """Expand the braces of a word. Raises _UnknownWordError."""
    depth, start, cuts = 0, 0, list[int]()
    for match in re.finditer(_BRACE, word):
        token, at = match.group(), match.start()
        if token == "{":
            depth += 1
            start, cuts = (at, [at]) if depth == 1 else (start, cuts)
        elif token == ".." and depth:
            raise _UnknownWordError
        elif token == "," and depth == 1:
            cuts.append(at)
        elif token == "}" and depth:
            depth -= 1
            if depth == 0 and len(cuts) > 1:
                parts = [word[cut + 1 : end] for cut, end in zip(cuts, [*cuts[1:], at], strict=True)]
                middles, rests = [middle for part in parts for middle in _braces(part)], _braces(word[at + 1 :])
                if len(middles) * len(rests) > MAX_WORDS:
                    raise _UnknownWordError
                return [word[:start] + middle + rest for middle in middles for rest in rests]
    return [word]


class _Words:
    """Expands words as a shell does."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, bool]] = []
        self.has_plain_globs = True
        """Whether no option of the shell has changed what globs mean."""

    def expand(self, word: str, shell: _Shell) -> list[str | None]:
        """The words that a word results in; None for what only the shell knows."""
        if word.startswith(("<(", ">(")):
            return ["/dev/fd/63"]
        try:
            parts = _braces(word) if "{" in word and "$(" not in word and "`" not in word else [word]
            return [field for part in parts for field in self._split(part, shell)]
        except _UnknownWordError:
            return [None]

    def value(self, word: str, shell: _Shell) -> str | None:
        """The text of a word that is neither split nor compared with files, such as a value or a here-string."""
        try:
            return "".join(text for text, _ in self._pieces(word, shell))
        except _UnknownWordError:
            return None

    def _split(self, word: str, shell: _Shell) -> list[str | None]:
        if word in ("$@", '"$@"', "$*") and shell.arguments is not None:
            return list(shell.arguments)
        fields: list[list[tuple[str, bool]]] = [[]]
        for text, is_quoted in self._pieces(word, shell):
            first, *others = [text] if is_quoted else re.split(r"\s+", text)
            if others and "IFS" in shell.variables:
                raise _UnknownWordError
            fields[-1].append((first, is_quoted))
            fields += [[(other, False)] for other in others]
        return [name for field in fields for name in self._match(field, shell)]

    def _match(self, field: Sequence[tuple[str, bool]], shell: _Shell) -> list[str | None]:
        """The files that a field matches; the field itself if it matches none."""
        text = "".join(part for part, _ in field)
        if not text:
            return [""] if any(is_quoted for _, is_quoted in field) else []
        if all(is_quoted or not re.search(r"[*?\[]", part) for part, is_quoted in field):
            return [text]
        import glob  # only globs need it

        pattern = "".join(glob.escape(part) if is_quoted else part for part, is_quoted in field)
        is_known = self.has_plain_globs and not re.search(_ODD_GLOB, pattern)
        if not is_known or (shell.folder is None and not pattern.startswith("/")):
            raise _UnknownWordError
        names: list[str] = []
        for name in glob.iglob(pattern, root_dir=shell.folder):
            names.append(name)
            if len(names) > MAX_WORDS:
                raise _UnknownWordError
        return [*(sorted(names) or [text])]

    def _pieces(self, word: str, shell: _Shell) -> list[tuple[str, bool]]:
        """The parts of a word with whether they are quoted. Raises _UnknownWordError."""
        word = re.sub(_KNOWN, lambda match: "${PWD}" if match[1] == "pwd" else f"${{{_TOPLEVEL}}}", word)
        if _TOPLEVEL in word:
            shell = shell.assign(_TOPLEVEL, _toplevel(shell.folder))
        pieces, at, pattern = list[tuple[str, bool]](), 0, re.compile(_PIECE)
        if word.startswith("~"):
            home = word.partition("/")[0]
            pieces, at = [(os.path.expanduser(home), True)], len(home)
        while at < len(word):
            match = pattern.match(word, at)
            if match is None or match.lastgroup is None or word.startswith(("~+", "~-")):
                raise _UnknownWordError
            at, kind = match.end(), match.lastgroup
            pieces.append((self._piece(kind, match[kind], shell), kind not in ("name", "braced", "glob", "plain")))
        return pieces

    def _piece(self, kind: str, text: str, shell: _Shell) -> str:
        match kind:
            case "escaped":
                return "" if text == "\n" else text
            case "single" if text.startswith(_MARK):
                return self.texts[int(text[1:])][0]
            case "ansi":
                return re.sub(_ANSI, _unescape, text)
            case "double":
                return re.sub(_EXPANSION, lambda match: _expand(match, shell), text)
            case "name" | "braced":
                return _require(shell.value(text))
            case _:
                return text


def _unescape(match: re.Match[str]) -> str:
    if match[3]:
        return _require(None if match[3] in "uUc" else _ANSI_LETTERS.get(match[3], match[3]))
    return chr(int(match[1], 16) if match[1] else int(match[2], 8))


def _expand(match: re.Match[str], shell: _Shell) -> str:
    """What an escape or a variable in double quotes results in."""
    if match[1]:
        return match[1].strip("\n")
    return _require(None if match[4] else shell.value(match[2] or match[3]))


def _require(value: str | None) -> str:
    if value is None:
        raise _UnknownWordError
    return value


class _Reader:
    """Reads the statements of a shell, one after the other. A method is named by the kind of node that it reads."""

    def __init__(self) -> None:
        self.paths: dict[str, None] = {}
        self.git: list[GitCommand] = []
        self.reports = False
        self.words = _Words()
        self.made: set[str] = set()
        """Folders that the command itself makes."""
        self._output: str | None = None
        """What the last command printed, if that is known."""
        self._calling: list[int] = []
        self._is_broken = False
        self._depth = self._steps = 0

    def read(self, command: str, shell: _Shell) -> _Ends:
        """Read commands in a text. Raises _UnreadableError and ImportError."""
        if len(command) > MAX_COMMAND:
            raise _UnreadableError(TOO_LONG)
        code = _take_texts(command, self.words.texts)
        if len(code) > MAX_CODE or "\0" in command or _MARK in command:
            raise _UnreadableError(TOO_COMPLEX)
        root, was_broken = _parse(code), self._is_broken
        self._depth += NESTED_READ
        ends = self.run(root, shell)
        self._depth -= NESTED_READ
        self.reports |= root.has_error
        is_broken, self._is_broken = self._is_broken, was_broken
        return _Ends(shell, shell) if is_broken else ends

    def run(
        self, node: "Node", shell: _Shell | None, redirects: Sequence["Node"] = (), stdin: str | None = None
    ) -> _Ends:
        """Run a statement. `redirects`: what the grammar attaches to a statement around it, although it belongs to the
        last command."""
        if shell is None or self._is_broken:
            return _Ends(None, None)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _UnreadableError(TOO_COMPLEX)
        read: Any = getattr(self, f"_{node.type}", self._other)
        if node.type in ("command", "list", "negated_command", "pipeline", "redirected_statement"):
            ends: _Ends = read(node, shell, redirects, stdin)
        else:
            self._redirect(redirects, shell)
            ends = read(node, shell)
        self._depth -= 1
        return ends

    def _sequence(self, nodes: Sequence["Node"], shell: _Shell | None) -> _Ends:
        ends = _Ends(shell, shell)
        for node, following in zip(nodes, [*nodes[1:], None], strict=False):
            before = ends.either
            if node.is_named and node.type != "comment" and before is not None:
                ends = self.run(node, before)
                if following is not None and following.type == "&":
                    ends = _Ends(before, before)
        return ends

    def _program(self, node: "Node", shell: _Shell) -> _Ends:
        if node.children and node.children[0].type == "((":
            return self._arithmetic(node, shell)
        return self._sequence(node.children, shell)

    _compound_statement = _do_group = _program

    def _subshell(self, node: "Node", shell: _Shell) -> _Ends:
        self._sequence(node.children, shell)
        return _Ends(shell, shell)

    _command_substitution = _process_substitution = _subshell

    def _redirected_statement(
        self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None
    ) -> _Ends:
        own = [child for child in node.children if child.type.endswith("_redirect")]
        body = next((child for child in node.children if child.is_named and child not in own), None)
        if any(child.type == "ERROR" for child in node.children):
            return self._break()
        if body is not None:
            return self.run(body, shell, [*own, *redirects], stdin)
        self._redirect([*own, *redirects], shell)
        return _Ends(shell, shell)

    def _list(
        self,
        node: "Node",
        shell: _Shell,
        redirects: Sequence["Node"],
        stdin: str | None,
        rest: Sequence[tuple["Node", Sequence["Node"]]] = (),
    ) -> _Ends:
        """Commands with `&&` and `||`. `rest`: commands to which the last one is piped."""
        chain: list[tuple[str, Node]] = []
        while node.type == "list":
            chain.append((node.children[1].type, node.children[-1]))
            node = node.children[0]
        ends = self.run(node, shell)
        for index, (operator, right) in reversed([*enumerate(chain)]):
            before = ends.succeeded if operator == "&&" else ends.failed
            after = self.run(right, before) if index else self._pipe([(right, redirects), *rest], before, None)
            if operator == "&&":
                ends = _Ends(after.succeeded, _join(ends.failed, after.failed))
            else:
                ends = _Ends(_join(ends.succeeded, after.succeeded), after.failed)
        return ends

    def _pipeline(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        first, *rest = [child for child in node.children if child.is_named and child.type != "comment"]
        parts: list[tuple[Node, Sequence[Node]]] = [(part, redirects if part is rest[-1] else ()) for part in rest]
        own: list[Node] = []
        while first.type == "redirected_statement" and first.children[0].type in ("list", "redirected_statement"):
            first, own = first.children[0], [*first.children[1:], *own]
        if first.type == "list":  # as the grammar reads `a && b > c | d`
            return self._list(first, shell, own, stdin, parts)
        return self._pipe([(first, own), *parts], shell, stdin)

    def _pipe(self, parts: Sequence[tuple["Node", Sequence["Node"]]], shell: _Shell | None, stdin: str | None) -> _Ends:
        ends = _Ends(shell, shell)
        for part, redirects in parts:
            self._output = None
            ends = self.run(part, shell, redirects, stdin)
            stdin = self._output
        return ends if len(parts) == 1 else _Ends(shell, shell)

    def _negated_command(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        ends = self.run(node.children[-1], shell, redirects, stdin)
        return _Ends(ends.failed, ends.succeeded)

    def _if_statement(self, node: "Node", shell: _Shell) -> _Ends:
        clauses = [child for child in node.children if child.type in ("elif_clause", "else_clause")]
        before, results = _join(shell), list[_Shell | None]()
        for part in (node, *clauses):
            nodes = [child for child in part.children if child not in clauses]
            then = next((index for index, child in enumerate(nodes) if child.type == "then"), 0)
            condition = self._sequence(nodes[:then], before)
            results.append(self._sequence(nodes[then:], condition.succeeded).either)
            before = condition.failed if then else None
        after = _join(*results, before)
        return _Ends(after, after)

    def _case_statement(self, node: "Node", shell: _Shell) -> _Ends:
        results = [self._sequence(child.children, shell).either for child in node.children if child.type == "case_item"]
        after = _join(shell, *results)
        return _Ends(after, after)

    def _for_statement(self, node: "Node", shell: _Shell) -> _Ends:
        name, body = _text(node.child_by_field_name("variable")), node.children_by_field_name("body")
        values = node.children_by_field_name("value")
        words = [word for value in values for word in self._expand(value, shell)]
        if not values and all(child.type != "in" for child in node.children):
            words = list(shell.arguments or [None])
        if None in words or node.children[0].type == "select":
            return self._loop(lambda it: self._sequence(body, it.assign(name, None)).either, shell)
        before, results = _join(shell), [] if words else [shell]
        for word in words:
            if before is not None:
                before = self._sequence(body, before.assign(name, word)).either
                results += [before] if before is not None else []
        after = _join(*results)
        return _Ends(after, after)

    def _while_statement(self, node: "Node", shell: _Shell) -> _Ends:
        body = [child for child in node.children if child.type in ("do_group", "compound_statement")]
        header = [child for child in node.children if child not in body]
        is_counted = node.type == "c_style_for_statement"

        def turn(before: _Shell) -> _Shell | None:
            ends = self._arithmetic(node, before) if is_counted else self._sequence(header, before)
            return _join(ends.either, self._sequence(body, ends.either).either)

        return self._loop(turn, shell)

    _c_style_for_statement = _while_statement

    def _loop(self, turn: Callable[[_Shell], _Shell | None], shell: _Shell) -> _Ends:
        """Run the body of a loop until what is known does not change."""
        for _ in range(3):
            shell = _join(shell, turn(shell)) or shell
        return _Ends(shell, shell)

    def _function_definition(self, node: "Node", shell: _Shell) -> _Ends:
        name = _text(node.child_by_field_name("name"))
        after = shell._replace(functions={**shell.functions, name: node})
        return _Ends(after, after)

    def _run_function(self, call: _Call) -> _Ends:
        """Run a function. What it assigns may be local, and is unknown afterwards."""
        node, shell = call.shell.functions[call.program], call.shell
        if node.id in self._calling:
            return _Ends(shell, shell)
        self._calling.append(node.id)
        self._redirect(node.children_by_field_name("redirect"), shell)
        body = node.children_by_field_name("body")
        after = self._sequence(body, shell._replace(arguments=tuple(call.words))).either
        self._calling.pop()
        joined = _join(after, shell)
        if after is None or joined is None:
            return _Ends(None, None)
        after = after._replace(arguments=shell.arguments, variables=joined.variables)
        return _Ends(after, after)

    def _arithmetic(self, node: "Node", shell: _Shell) -> _Ends:
        """Variables in an arithmetic expression may change."""
        self._substitute(node, shell)
        for name in re.findall(r"[A-Za-z_]\w*", _text(node)):
            shell = shell.assign(name, None)
        return _Ends(shell, shell)

    def _declaration_command(self, node: "Node", shell: _Shell) -> _Ends:
        """Assignments, declarations, and what removes variables."""
        for child in [node] if node.type == "variable_assignment" else node.children:
            if child.type == "variable_assignment":
                shell = self._assign(child, shell, shell)
            elif child.type == "variable_name" and _text(node.children[0]) != "export":
                shell = shell.assign(_text(child), None)
            else:
                self._substitute(child, shell)
        return _Ends(shell, shell)

    _unset_command = _variable_assignment = _variable_assignments = _declaration_command

    def _assign(self, node: "Node", shell: _Shell, into: _Shell) -> _Shell:
        """Assign to a variable `into` a shell, as read in another one."""
        self._substitute(node, shell)
        value = node.child_by_field_name("value")
        is_plain = node.children[1].type == "=" and (value is None or value.type != "array")
        name = _text(node.children[0]).partition("[")[0]
        return into.assign(name, self.words.value(_text(value), shell) if is_plain else None)

    def _command(self, node: "Node", shell: _Shell, redirects: Sequence["Node"], stdin: str | None) -> _Ends:
        words, files = list[str | None](), list(redirects)
        assigned = shell._replace(variables={})
        for child in node.children:
            if child.type == "ERROR":
                return self._break()
            if child.type == "variable_assignment":
                assigned = self._assign(child, shell, assigned)
            elif child.type.endswith("_redirect"):
                files.insert(0, child)
            elif child.type == "subshell":
                self.run(child, shell)
            else:
                words += self._expand(child, shell)
        text, more = self._redirect(files, shell)
        if words + more:
            return self.execute(words + more, shell, text if text is not None else stdin, assigned.variables)
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
            files = self._expand(targets[0], shell) if targets and operator != "<" else []
            if operator == "<" and targets:
                self._substitute(targets[0], shell)
                stdin = self._input(_text(targets[0]), shell)
            elif operator in _WRITES and not (operator == ">&" and re.fullmatch(r"\d+-?|-", files[0] or "")):
                self.write(files[0] if len(files) == 1 else None, shell)
            words += [word for target in targets[1:] for word in self._expand(target, shell)]
        return stdin, words

    def _input(self, word: str, shell: _Shell) -> str | None:
        """The text that a here-document or a here-string passes; None for a file."""
        if word.startswith(_MARK):
            text = self.words.value(word[1:], shell)
            return None if text is None else f"{text}\n"
        if not word.startswith(f"'{_MARK}"):
            return None
        text, is_literal = self.words.texts[int(word[2:-1])]
        if is_literal:
            return text
        is_plain = not re.search(r"(?<!\\)(?:\\\\)*[$`]", text)
        self.reports |= re.search(r"\$\(|`", text) is not None and not is_plain
        return re.sub(r"\\([\\$`]|\n)", lambda match: match[1].strip("\n"), text) if is_plain else None

    def _substitute(self, node: "Node", shell: _Shell) -> None:
        """Run the commands within a word."""
        if node.type in ("command_substitution", "process_substitution"):
            self.run(node, shell)
        elif re.search(rb"[$<>]\(|`", node.text or b""):
            for child in node.children:
                self._substitute(child, shell)

    def _other(self, node: "Node", shell: _Shell) -> _Ends:
        """A test, a pattern, or what the grammar does not know."""
        if node.type == "ERROR":
            if not any(not child.is_named and child.type not in (";", "\n") for child in node.children):
                self._sequence(node.children, shell)
            return self._break()
        if node.type.endswith("_redirect"):
            self._redirect([node], shell)
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
        name = words[0] or ""
        program = re.sub(r"^(python|pypy|pip)[\d.]+$", r"\1", os.path.basename(name))
        call = _Call(program, list(words[1:]), shell, stdin, assigned or {})
        if name in shell.functions:
            return self._run_function(call._replace(program=name))
        read = _PROGRAMS.get(program)
        ends = read(self, call) if read is not None else None
        if read is None and program in READERS:
            self._output = _read_output(call)
        elif read is None:
            self.reports |= not _is_harmless(program, call.words)
        return ends if ends is not None else _Ends(shell, shell)

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
        elif not re.match(_NO_FILES, path):
            self.paths[path] = None

    def is_folder(self, path: str | None) -> bool:
        return path is not None and (path in self.made or os.path.isdir(path))


def _read_output(call: _Call) -> str | None:
    """What a program prints, where that is simple."""
    if call.program == "echo" and None not in call.words and not _has(call.words, "-"):
        return " ".join(filter(None, call.words)) + "\n"
    return call.stdin if call.program == "cat" and not call.words else None


def _options(
    words: Sequence[str | None], valued: str, stops: bool = False
) -> tuple[dict[str, str | None], list[str | None]]:
    """Options with their values, and operands, as GNU programs read them. `valued`: the options that have a value,
    with `?` if it can only be attached. `stops`: options end at the first operand."""
    names, rest = valued.split(), list(words)
    options, operands = dict[str, str | None](), list[str | None]()
    while rest:
        word = rest.pop(0)
        if word == "--":
            return options, operands + rest
        if word is None or word == "-" or not word.startswith("-"):
            operands.append(word)
            if stops:
                return options, operands + rest
        elif word.startswith("--"):
            name, equals, value = word.partition("=")
            full = next((it for it in names if len(name) > 3 and it.startswith(name)), name)
            is_apart = not equals and full in names and not full.endswith("?")
            options[full.rstrip("?")] = (rest.pop(0) if rest else None) if is_apart else value
        else:
            for index in range(1, len(word)):
                name, value = f"-{word[index]}", word[index + 1 :]
                has_value = name in names or f"{name}?" in names
                is_apart = name in names and not value
                options[name] = (rest.pop(0) if rest else None) if is_apart else value if has_value else ""
                if has_value:
                    break
    return options, operands


def _first(options: Mapping[str, str | None], names: str) -> str | None:
    """The value of the first of these options that is there, else an empty text."""
    return next((options[name] for name in names.split() if name in options), "")


def _has_option(options: Mapping[str, str | None], names: str) -> bool:
    return not options.keys().isdisjoint(names.split())


def _read_cd(reader: _Reader, call: _Call) -> _Ends:
    shell, words = call.shell, [word for word in call.words if word not in ("-L", "-P", "-e", "--")]
    is_push, folders, folder = call.program == "pushd", shell.folders, None
    word = words[0] if words else shell.value("HOME")
    if call.program == "popd" or (is_push and not words):
        if folders and not words:
            folder, folders = folders[0], (shell.folder, *folders[1:]) if is_push else folders[1:]
    elif word == "-":
        folder = shell.value("OLDPWD")
    elif word is not None and not (is_push and word[:1] in ("+", "-")) and "CDPATH" not in shell.variables:
        if word.startswith("/") or shell.folder is not None:
            folder = os.path.normpath(os.path.join(shell.folder or "/", word))
        folders = (shell.folder, *folders) if is_push else folders
    after = shell._replace(folder=folder, folders=folders).assign("OLDPWD", shell.folder)
    return _Ends(after, None if reader.is_folder(folder) else shell)


def _read_end(reader: _Reader, call: _Call) -> _Ends:
    """`true`, `false`, `exit`."""
    is_over = call.program == "exit"
    return _Ends(
        None if is_over or call.program == "false" else call.shell, call.shell if call.program == "false" else None
    )


def _read_variables(reader: _Reader, call: _Call) -> _Ends:
    """What assigns to the variables that it names, or to the arguments, or changes what globs mean."""
    shell = call.shell
    if call.program in ("set", "shift", "shopt"):
        is_glob = (
            call.program == "shopt"
            or "noglob" in call.words
            or re.search(r"(^| )[-+]\w*f", " ".join(filter(None, call.words)))
        )
        reader.words.has_plain_globs &= not is_glob
        is_set = call.program == "shift" or any(
            word is None or word[:1] not in ("-", "+") or word == "--" for word in call.words
        )
        shell = shell._replace(arguments=None) if is_set else shell
    elif call.program != "printf" or "-v" in call.words:
        for word in (*call.words, "REPLY", "MAPFILE", "OPTARG"):
            name = re.match(r"[A-Za-z_]\w*", word or "")
            shell = shell.assign(name[0], None) if name else shell
    return _Ends(shell, shell)


def _read_eval(reader: _Reader, call: _Call) -> _Ends | None:
    """`eval`, and `trap`, whose command runs later."""
    words = call.words[:1] if call.program == "trap" else call.words
    if None in words:
        reader.reports = True
        return None
    ends = reader.read(" ".join(filter(None, words)), call.shell) if words != ["-"] else None
    return ends if call.program == "eval" else None


def _read_source(reader: _Reader, call: _Call) -> None:
    reader.reports |= os.path.basename(next(iter(call.words), None) or "") not in _ACTIVATIONS


def _read_shell(reader: _Reader, call: _Call) -> None:
    """`bash -c`, or a shell that reads commands from a here-document."""
    options, words = _options(call.words, "-o -O +o +O --rcfile --init-file", stops=True)
    shell = call.shell._replace(variables=call.assigned, functions={}, folders=(), arguments=())
    if "-c" in options and words and words[0] is not None:
        reader.read(words[0], shell._replace(arguments=tuple(words[2:])))
    elif not words and call.stdin is not None:
        reader.read(call.stdin, shell)
    else:
        reader.reports |= "--version" not in options


def _read_wrapper(reader: _Reader, call: _Call) -> _Ends | None:
    """A program that runs the one behind it."""
    program, words = call.program, call.words
    if program in _RUNNERS and (not words or words[0] not in _RUNNERS[program].split()):
        reader.reports |= not _is_harmless(program, words)
        return None
    options, words = _options(words[program in _RUNNERS :], _WRAPPERS.get(program, _RUN_OPTIONS), stops=True)
    assigned, shell = dict(call.assigned), call.shell
    folder = _first(options, "-C -D --chdir --directory")
    shell = shell._replace(folder=reader.path(folder, shell)) if folder != "" else shell
    while program in ("env", "sudo") and words and re.match(r"\w+=", words[0] or ""):
        name, _, assigned[name] = (words.pop(0) or "").partition("=")
    words = words[program in ("timeout", "flock") :]
    if program == "time" and _has_option(options, "-o --output"):
        reader.write(_first(options, "-o --output"), shell)
    reader.reports |= _has_option(options, "-S --split-string" if program == "env" else "-c") and program != "command"
    if not words or (program == "command" and _has_option(options, "-v -V")):
        return None
    words = ["python", "-m", *words] if program == "uv" and _has_option(options, "-m --module") else words
    ends = reader.execute(words, shell, call.stdin, assigned)
    return _Ends(None, None) if program == "exec" else ends if program in ("builtin", "command", "time") else None


def _read_xargs(reader: _Reader, call: _Call) -> None:
    options, words = _options(call.words, _XARGS, stops=True)
    mark = options.get("-I") or ("{}" if _has_option(options, "-i --replace") else None)
    if words:
        words = [None if mark and mark in (word or "") else word for word in words]
        reader.execute(words if mark else [*words, None], call.shell)


def _read_find(reader: _Reader, call: _Call) -> None:
    words = call.words
    reader.reports |= "-delete" in words
    for index, word in enumerate(words):
        if word in ("-fprint", "-fprint0", "-fprintf", "-fls"):
            reader.write(next(iter(words[index + 1 :]), None), call.shell)
        elif word in ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"):
            end = next((at for at, it in enumerate(words) if at > index and it in (";", "+")), len(words))
            command = [None if "{}" in (it or "") else it for it in words[index + 1 : end]]
            shell = call.shell._replace(folder=None) if "dir" in word else call.shell
            if command:
                reader.execute(command if call.program == "find" else [*command, None], shell)


def _read_python(reader: _Reader, call: _Call) -> None:
    """`python -m pytest` is like `pytest`."""
    at = next((index for index, it in enumerate(call.words) if it == "-m" or not (it or "").startswith("-")), 0)
    module = call.words[at + 1 :] if call.words[at : at + 1] == ["-m"] else []
    if module:
        reader.execute(module, call.shell)
    else:
        reader.reports |= not _is_harmless(call.program, call.words)


def _read_git(reader: _Reader, call: _Call) -> None:
    shell, words = call.shell, list(call.words)
    for variable, option in (("GIT_WORK_TREE", "--work-tree"), ("GIT_DIR", "--git-dir")):
        words = [option, call.assigned[variable], *words] if variable in call.assigned else words
    _, operands = _options(words, "-C -c --git-dir --work-tree --namespace --exec-path?", stops=True)
    verb = operands[0] if operands else ""
    reader.reports |= verb is None or _has(operands, "--output", "--exec=")
    reader.reports |= verb in _GIT_PROGRAMS and {"--check", "--stat", "--numstat"}.isdisjoint(operands)
    if not _is_harmless("git", operands):
        reader.reports |= shell.folder is None
        reader.git += [GitCommand(tuple(words), shell.folder)] if shell.folder is not None else []


def _read_writer(reader: _Reader, call: _Call) -> None:
    """A program whose options and operands name what it writes."""
    program = _WRITERS[call.program]
    options, operands = _options(call.words, program.valued)
    for name in program.outputs.split():
        if options.get(name, "-") != "-":
            reader.write(options[name], call.shell)
    if call.program == "curl" and _has_option(options, "-O --remote-name"):
        for url in operands:
            reader.write(os.path.basename(re.sub(r"[?#].*", "", url)) if url else None, call.shell)
    if _has_option(options, program.silent):
        return
    reader.reports |= program.reports or (call.program == "curl" and _has_option(options, "--output-dir"))
    for word in [] if program.first is None else operands[program.first :]:
        is_refused = call.program == "rm" and not _has_option(options, "-r -R -d --recursive --dir")
        if not is_refused or not reader.is_folder(reader.path(word, call.shell)):
            reader.write(word, call.shell)


def _read_made(reader: _Reader, call: _Call) -> None:
    """`mkdir` changes no file, and `touch` only the time of one that exists."""
    options, operands = _options(call.words, "-m --mode -d --date -t -r --reference")
    for word in operands:
        path = reader.path(word, call.shell)
        if call.program == "touch" and not _has_option(options, "-c --no-create") and not os.path.exists(path or ""):
            reader.write(word, call.shell)
        while call.program == "mkdir" and path is not None and not reader.is_folder(path):
            reader.made.add(path)
            path = os.path.dirname(path)


def _read_transfer(reader: _Reader, call: _Call) -> None:
    """`cp`, `mv`, `install`, `ln`, `rsync`."""
    program, shell = call.program, call.shell
    options, words = _options(call.words, _TRANSFER[program])
    goal = _first(options, "-t --target-directory")
    is_folder = goal != ""
    if goal == "" and words:
        goal = words.pop() if len(words) > 1 else "." if program == "ln" else ""
        is_folder = len(words) > 1 or reader.is_folder(reader.path(goal, shell))
    is_remote = program == "rsync" and (_has_option(options, "-n --dry-run") or ":" in (goal or ""))
    if is_remote or (program == "install" and _has_option(options, "-d --directory")):
        return
    is_folder = is_folder and not _has_option(options, "-T --no-target-directory")
    is_careful = program != "ln" and _has_option(options, "-n -u --no-clobber --update --parents --delete")
    for source in words:
        name = os.path.basename((source or "").rstrip("/"))
        target = os.path.join(goal or "", name) if is_folder and name and goal is not None else goal
        origin, path = reader.path(source, shell), reader.path(target, shell)
        if program == "mv" and not is_careful:
            reader.write(source, shell)
        is_deep = program in ("cp", "rsync") and (source is None or reader.is_folder(origin))
        if is_careful or (is_folder and not name) or (is_deep and (program == "rsync" or reader.is_folder(path))):
            reader.reports = True  # which files of a folder change depends on those in the other one
        elif program != "ln" or _has_option(options, "-f --force") or not os.path.lexists(path or ""):
            reader.write(target, shell)
        if path is not None and reader.is_folder(origin) and program in ("cp", "mv"):
            reader.made.add(path)


def _read_sed(reader: _Reader, call: _Call) -> None:
    options, files = _options(call.words, _SED)
    if "-i" in options and files[:1] == [""] and len(files) > 1:
        files = files[1:]  # the suffix of BSD
    has_option = _has_option(options, "-e --expression -f --file")
    scripts = [options.get("-e"), options.get("--expression")] if has_option else files[:1]
    for script in filter(None, scripts):
        rest = re.sub(_SED_SUBSTITUTE, lambda match: " w x " if set(match[2] or "") & set("we") else " ", script)
        reader.reports |= re.search(_SED_WRITES, rest) is not None
    suffix = _first(options, "-i --in-place") or ""
    for word in (files if has_option else files[1:]) if _has_option(options, "-i --in-place") else []:
        reader.write(word, call.shell)
        if word and suffix:
            head, tail = os.path.split(word)
            reader.write(os.path.join(head, suffix.replace("*", tail) if "*" in suffix else tail + suffix), call.shell)


def _read_perl(reader: _Reader, call: _Call) -> None:
    """`perl -pi -e` and `ruby -i`; other programs in these languages may write what they like."""
    words, has_code, suffix = list(call.words), False, None
    while words and (words[0] or "").startswith("-"):
        flags = re.match(_PERL_FLAGS, words.pop(0) or "")
        if flags and flags[1]:
            suffix = flags[2]
        elif flags and flags[3]:
            has_code = True
            words = words[0 if flags[4] else 1 :]
    for word in (words if has_code else words[1:]) if suffix is not None else []:
        reader.write(word, call.shell)
        if suffix and word:
            reader.write(f"{word}{suffix}", call.shell)
    reader.reports |= suffix is None and not _is_harmless(call.program, call.words)


def _read_awk(reader: _Reader, call: _Call) -> None:
    options, operands = _options(call.words, "-v -F -f -i --include --assign --field-separator --file")
    has_file = _has_option(options, "-f --file")
    if _first(options, "-i --include") == "inplace":
        for word in operands if has_file else operands[1:]:
            reader.write(word, call.shell)
    reader.reports |= has_file or re.search(_AWK_WRITES, next(iter(operands), None) or "") is not None


def _read_dd(reader: _Reader, call: _Call) -> None:
    reader.reports |= None in call.words
    for word in filter(None, call.words):
        if word.startswith("of="):
            reader.write(word[3:], call.shell)


def _read_tar(reader: _Reader, call: _Call) -> None:
    first = next(iter(call.words), None) or ""
    options, _ = _options(call.words if first.startswith("-") else [f"-{first}", *call.words[1:]], _TAR)
    is_written = _has_option(options, "-c --create -r --append -u --update -A")
    if is_written and _first(options, "-f --file") not in ("", "-"):
        reader.write(_first(options, "-f --file"), call.shell)
    is_extracted = not is_written and not _has_option(options, "-t --list -O --to-stdout --version --help")
    reader.reports |= is_extracted or "--remove-files" in options


def _read_patch(reader: _Reader, call: _Call) -> None:
    from holdlog.adapters.hooks.files import patched  # which imports this file in a function

    if call.program != "patch":
        patch = call.words[0] if call.words else call.stdin
        reader.reports |= patch is None
        for name in patched(patch or ""):
            reader.write(name, call.shell)
        return
    options, operands = _options(call.words, _PATCH)
    folder, strip = _first(options, "-d --directory"), _first(options, "-p --strip") or ""
    shell = call.shell if folder == "" else call.shell._replace(folder=reader.path(folder, call.shell))
    named = [options[name] for name in ("-o", "--output") if name in options] or operands[:1]
    if not named and call.stdin is not None:
        names = {name for pair in re.findall(_DIFF, call.stdin) for name in pair} - {"/dev/null"}
        named = ["/".join(name.split("/")[int(strip) if strip.isdecimal() else -1 :]) for name in names]
    reader.reports |= not named and "--dry-run" not in options
    for word in named if "--dry-run" not in options else []:
        reader.write(word, shell)


_PROGRAMS: Final[Mapping[str, Callable[[_Reader, _Call], _Ends | None]]] = {
    name: read
    for names, read in (
        (" ".join({**_WRAPPERS, **_RUNNERS}), _read_wrapper),
        (" ".join(_WRITERS), _read_writer),
        (" ".join(_TRANSFER), _read_transfer),
        (". source", _read_source),
        (": exit false true", _read_end),
        ("apply_patch applypatch patch", _read_patch),
        ("awk gawk mawk nawk", _read_awk),
        ("bash dash ksh sh zsh", _read_shell),
        ("bsdtar gtar tar", _read_tar),
        ("cd popd pushd", _read_cd),
        ("dd", _read_dd),
        ("eval trap", _read_eval),
        ("fd fdfind find", _read_find),
        ("getopts let mapfile printf read readarray set shift shopt", _read_variables),
        ("git", _read_git),
        ("gsed sed", _read_sed),
        ("mkdir touch", _read_made),
        ("perl ruby", _read_perl),
        ("pypy python", _read_python),
        ("xargs", _read_xargs),
    )
    for name in names.split()
}
