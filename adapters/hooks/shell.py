"""What a shell command does to files, read from its syntax tree.

Standard library only; tree-sitter is imported in the function that parses. Pure but for globs and folders, which are
looked up in the worktree. What is certain is named; what only a shell knows is compared afterwards.
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
"""Characters without here-documents: the parser is slow on some broken input."""
MAX_STEPS: Final = 50_000
"""Nodes of the syntax tree that are read, counting those of a loop each time; a glob counts 100."""
MAX_WORDS: Final = 500
"""Words that braces or a glob result in."""
MAX_PATHS: Final = 1_000

UNPARSED: Final = "shell commands are not guarded: tree-sitter cannot be imported"
TOO_LONG: Final = f"a shell command of more than {MAX_COMMAND:,} characters is not guarded"
TOO_COMPLEX: Final = "a shell command that is too complex is not guarded"


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _table(rows: str) -> dict[str, str]:
    """What follows the first word of each row."""
    return dict(re.findall(r"(\S+) *([^|]*?)\s*(?:\||$)", rows))


READERS: Final = _set(
    """: [ [[ ag b2sum base64 basename bat batcat bc bg break cal cat chgrp chmod chown cksum cmp column comm continue cut
    date df diff dig dirname dirs du echo egrep exit expr false fg fgrep file fold free getconf getent grep groups hash
    head help hexdump history holdlog hostname id jobs join jq kill killall last less locale locate ls lsof man md5sum
    more nl nproc od paste pgrep ping pkill pr printenv ps pstree pwd readlink realpath return rev rg rmdir seq sha1sum
    sha256sum sha512sum sleep ss stat strings stty sum sync tac tail test times top tput tr tree true tsort tty type
    ulimit umask uname uptime users wait wc whereis which who whoami yes zcat zgrep }"""
)
"""Programs that change no file, whatever their arguments are. Modes, owners and folders are no content."""
CHECKERS: Final = _set(
    """actionlint bandit basedpyright coverage ctest dmypy eslint flake8 hadolint javac jest kotlinc markdownlint mocha
    mypy oxlint phpstan phpunit py.test pycodestyle pydocstyle pyflakes pylint pyright pytest rspec shellcheck
    staticcheck stylelint tsc ty unittest vitest vue-tsc vulture yamllint"""
)
"""Compilers, linters and test runners: they change no source, unless an option says so."""
_VERBS: Final = _table(
    """bun test | cargo b bench build c check clippy doc metadata nextest t test tree | deno check lint test |
    dotnet build test | go build doc env list test version vet | gradle build check test | mvn compile test verify |
    npm ls outdated t test view | pip check freeze list show | pnpm ls outdated t test | ruff check rule version |
    swift build test | yarn test"""
)
"""Subcommands that are like CHECKERS."""
_WRITING: Final = ("--fix", "--write", "--update", "--snapshot-update", "--in-place", "--inplace", "--add-noqa", "-u")
_FORMATTERS: Final = _set("autopep8 black cargo clang-format isort prettier ruff rustfmt yapf")
_DRY: Final = _set("--check --diff --dry-run --list-different")
_QUESTIONS: Final = _set("--version --help -V -h -v version help")
_WRAPPERS: Final = _table(
    """builtin | bunx | busybox | command | coproc | doas -u | env -u --unset -C --chdir | exec -a | ionice -c -n |
    nice -n --adjustment | nohup | npx -p --package | setsid | stdbuf -i -o -e --input --output --error |
    sudo -u --user -g --group -h --host -p --prompt -D --chdir -R -T -U | time -f -o --format --output |
    timeout -s --signal -k --kill-after | uvx --from --with -p --python | {"""
)
"""Programs that run the one behind them, with their options that have a value. The grammar reads `time {` as words."""
_RUNNERS: Final = _table(
    "bundle exec | hatch run | pdm run | pipenv run | pnpm exec dlx | poetry run | uv run | yarn exec"
)
"""Programs with a subcommand that does so."""
_RUN_OPTIONS: Final = "-p --python --with --extra --group --package --env-file --directory --project --with-editable"
_CURL: Final = "-A -b -c -C -d -D -e -E -F -H -K -m -o -P -Q -r -t -T -u -U -w -x -X -y -Y -z --output --header"
_WRITERS: Final[Mapping[str, tuple[str, str, int | None]]] = {
    "curl": (_CURL, "-o --output -c -D", None),
    "json.tool": ("--indent", "", 1),
    "rm": ("", "", 0),
    "shred": ("-n -s --size --iterations", "", 0),
    "sort": ("-k -t -S -T -o --key --field-separator --output", "-o --output", None),
    "tee": ("", "", 0),
    "truncate": ("-s --size -r --reference", "", 0),
    "uniq": ("-f -s -w", "", 1),
    "unlink": ("", "", 0),
}
"""Options that have a value, those of them that name a file which is written, and from which operand on all are."""
_TRANSFER: Final = "-t --target-directory -S --suffix -m --mode -o --owner -g --group"
_CAREFUL: Final = _set("-n -u -d --no-clobber --update --parents --directory")
"""Options with which a transfer may change nothing, or other files."""
_EDITORS: Final = _table(
    """sed -e --expression -f --file -l --line-length -i? --in-place? | gsed -e -f -i? | perl -e -E -i? -M? -I? -F? |
    ruby -e -i? -r? -I? -F? | awk -v -F -f -i --include | gawk -v -F -f -i --include"""
)
_GIT_READERS: Final = _set("blame cat-file describe diff grep log ls-files rev-list rev-parse shortlog show status")
_GIT_PROGRAMS: Final = _set("apply bisect filter-branch submodule")
"""Git commands that write what a patch or a program says."""
_ACTIVATIONS: Final = _set("activate .bashrc .zshrc .profile nvm.sh")
"""Scripts that set a shell up and change no file."""
_NO_FILES: Final = re.compile(r"/dev/(?!shm/)|/proc/")
_TEMPORARY: Final = "/dev/fd/temporary"
"""Stands for what mktemp prints: a path that nobody holds."""
_WRITES: Final = frozenset({">", ">>", ">|", "&>", "&>>", ">&"})
_LISTS: Final = frozenset({"list", "negated_command", "pipeline", "redirected_statement"})
_MARK: Final = "\x01"
"""Begins what a here-document in the code is replaced by; its number follows."""

_TO_NOWHERE: Final = re.compile(r"(?:\d|&)?>>?\s*/dev/null(?![\w./-])|\d?>&\d(?!\S)")
_SIMPLE_QUOTES: Final = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")
_HEADS: Final = re.compile(r"[;&|\n(){}`]+")
_HERE: Final = re.compile(r"""(?<!<)<<(-?)[ \t]*(\\?[\w.+-]+|'[^'\n]+'|"[^"\n]+")""")
_QUOTED: Final = r"""(?s)\\.|'[^']*'|"(?:[^"\\]|\\.)*"|\$\{[^}]*\}"""
_BRACE: Final = r"""([^{}'"\\$`]*)\{([^{}'"\\$`]*,[^{}'"\\$`]*)\}([^'"\\$`]*)"""
_PRINTED: Final = r"\$\(\s*(?:(pwd)|(git rev-parse --show-toplevel)|mktemp(?: -d| -t [\w.-]+)*)\s*\)"
_PIECE: Final = re.compile(
    r"""(?s)\\(?P<escaped>.)|'(?P<single>[^']*)'|\$'(?P<ansi>[^'\\]*)'|\$?"(?P<double>(?:[^"\\`$]|\\.|\$(?!\())*)\""""
    r"""|\$(?P<name>\w+)|\$\{(?P<braced>\w+)\}|(?P<plain>[^\\'"$`()]+|\$(?![\w({@*\#?$!-]))"""
)
_EXPANSION: Final = r"""\\([$`"\\\n])|\$(\w+)|\$\{(\w+)\}|(\$[{@*\#?$!-])"""
_ODD_GLOB: Final = r"\[\^|\[\[|\[:|\*\*"
"""What Python reads in another way than a shell, or what depends on options of the shell."""
_SED_WRITES: Final = r"(?<![A-Za-z])[gpiIM\d]*[wW]\s|/[gpiIM\d]*e\s*(?:$|[;}\n])"
_AWK_WRITES: Final = r'>>?\s*["(a-zA-Z$]|system\s*\(|\|\s*"'
_DIFF: Final = r"(?m)^--- ([^\t\r\n]+).*\n\+\+\+ ([^\t\r\n]+)"


class ShellReading(NamedTuple):
    """What a shell command does to files. `paths`: that it certainly changes, absolute. `git`: its git commands, but for
    those that only read, such as `git status`. `reports`: it may change files that nobody can name beforehand, so they
    are compared afterwards. `problem`: why it could not be read, in one line."""

    paths: tuple[str, ...] = ()
    git: tuple[GitCommand, ...] = ()
    reports: bool = False
    problem: str = ""


class _Call(NamedTuple):
    """A simple command. `words`: after the program; None: only the shell knows it. `stdin`: its text, None likewise.
    `assigned`: the variables before it."""

    program: str
    words: list[str | None]
    stdin: str | None
    assigned: "_Shell"


_Shell = Mapping[str, str | None]
"""What is known of a shell between two commands: its variables, None if only the shell knows the value. PWD is its
folder, `__entered` the one that it is in if the last command succeeded; arguments have numbers as names."""
_Stage = tuple["Node", tuple["Node", ...]]
"""A command of a pipeline, and redirections that the grammar attaches elsewhere."""


class _UnreadableError(Exception):
    """The command cannot be read; the message says why."""


class _UnknownWordError(Exception):
    """Only the shell knows what the word is."""


def read_shell(command: str, folder: str) -> ShellReading:
    """Read a shell command that runs in `folder`, which is absolute. A git command in a folder that only the shell knows
    counts as one in `folder`: there, a wrong denial is better than a loss without a word."""
    if _is_silent(command):
        return ShellReading()
    reader, problem = _Reader(folder), ""
    try:
        if _MARK in command:
            raise _UnreadableError(TOO_COMPLEX)
        reader.read(command)
    except ImportError:
        problem = UNPARSED
    except _UnreadableError as error:
        problem = str(error)
    except RecursionError:
        problem = TOO_COMPLEX
    return ShellReading(tuple(reader.paths), tuple(reader.git), reader.reports or problem != "", problem)


def _is_silent(command: str) -> bool:
    """Whether no program of the command changes files, as seen without a parser."""
    if len(command) > MAX_CODE:
        return False
    text = _TO_NOWHERE.sub(" ", _SIMPLE_QUOTES.sub("Q", command))
    if re.search(r"""[>"'\\#]|<<""", text):
        return False
    commands = [part.split() for part in _HEADS.split(text)]
    return all(not it or it[0] in READERS or it[0] == "cd" or _is_harmless(it[0], it[1:]) for it in commands)


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


def _take_texts(command: str, texts: list[str | None]) -> str:
    """Replace here-documents by marks, because the grammar knows few forms of them and the parser is fast on short
    input. Adds what they contain to `texts`, None if the shell expands something in it."""
    lines, kept, at = command.split("\n"), list[str](), 0
    ends: dict[str, list[int]] = {}
    for number in range(len(lines) - 1, -1, -1):
        ends.setdefault(lines[number].strip("\t\r"), []).append(number)

    def take(match: re.Match[str]) -> str:
        nonlocal at
        name = match[2].strip("'\"\\")
        numbers = ends.get(name, [])
        while numbers and numbers[-1] < at:
            numbers.pop()
        if not numbers:
            return match[0]
        text = "".join(f"{line.lstrip(chr(9)) if match[1] else line}\n" for line in lines[at : numbers[-1]])
        texts.append(text if name != match[2] or not re.search(r"[$`\\]", text) else None)
        at = numbers[-1] + 1
        return f"< {_MARK}{len(texts) - 1}"

    while at < len(lines):
        at += 1
        kept.append(_HERE.sub(take, lines[at - 1]))
    return "\n".join(kept)


def _parse(code: str) -> "Node":
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    parser = Parser(Language(tree_sitter_bash.language()))
    return parser.parse(code.encode(errors="backslashreplace")).root_node


def _text(node: "Node | None") -> str:
    return (node.text or b"").decode(errors="replace") if node is not None else ""


def _join(*shells: _Shell) -> _Shell:
    """What is known of a shell that is one of these."""
    first, *others = shells
    names = {name: None for shell in shells for name in shell}
    return {name: first.get(name) if all(first.get(name) == it.get(name) for it in others) else None for name in names}


def _value(shell: _Shell, name: str) -> str:
    """The value of a variable. Raises _UnknownWordError."""
    value = shell.get(name)
    if name == "__toplevel":
        value = shell["PWD"]
        while value is not None and not os.path.exists(os.path.join(value, ".git")):
            value = os.path.dirname(value) if value != os.path.dirname(value) else None
    if value is None:
        raise _UnknownWordError
    return value


def _expand(word: str, shell: _Shell) -> list[str | None]:
    """The words that a word results in; None for what only the shell knows."""
    if word.startswith(("<(", ">(")):
        return ["/dev/fd/63"]
    fields: list[list[tuple[str, bool]]] = []
    try:
        for part in _braces(word):
            fields.append([])
            for text, is_quoted in _pieces(part, shell):
                first, *others = [text] if is_quoted else re.split(r"\s+", text)
                fields[-1].append((first, is_quoted))
                fields += [[(other, False)] for other in others]
        return [name for field in fields for name in _match(field, shell["PWD"])]
    except _UnknownWordError:
        return [None]


def _braces(word: str) -> list[str]:
    """Expand the braces of a word that has neither quotes nor variables. Raises _UnknownWordError."""
    if not re.search(r"\{[^{}]*(?:,|\.\.)", re.sub(_QUOTED, "", word)):
        return [word]
    match = re.fullmatch(_BRACE, word)
    parts, rests = (match[2].split(","), _braces(match[3])) if match else ([], [])
    if match is None or len(parts) * len(rests) > MAX_WORDS:
        raise _UnknownWordError
    return [match[1] + part + rest for part in parts for rest in rests]


def _match(field: Sequence[tuple[str, bool]], folder: str | None) -> list[str]:
    """The files that a field matches; the field itself if it matches none."""
    text = "".join(part for part, _ in field)
    if not text:
        return [""] if any(is_quoted for _, is_quoted in field) else []
    if all(is_quoted or not re.search(r"[*?\[]", part) for part, is_quoted in field):
        return [text]
    import glob  # only globs need it

    pattern = "".join(glob.escape(part) if is_quoted else part for part, is_quoted in field)
    if re.search(_ODD_GLOB, pattern) or (folder is None and not pattern.startswith("/")):
        raise _UnknownWordError
    names: list[str] = []
    for name in glob.iglob(pattern, root_dir=folder):
        names.append(name)
        if len(names) > MAX_WORDS:
            raise _UnknownWordError
    return sorted(names) or [text]


def _pieces(word: str, shell: _Shell) -> list[tuple[str, bool]]:
    """The parts of a word with whether they are quoted. Raises _UnknownWordError."""
    word = re.sub(_PRINTED, lambda it: f"${{{'PWD' if it[1] else '__toplevel' if it[2] else '__temporary'}}}", word)
    pieces, at = list[tuple[str, bool]](), 0
    if word.startswith("~"):
        home = word.partition("/")[0]
        pieces, at = [(os.path.expanduser(home), True)], len(home)
    while at < len(word):
        match = _PIECE.match(word, at)
        if match is None or match.lastgroup is None or word.startswith(("~+", "~-")):
            raise _UnknownWordError
        at, kind, text = match.end(), match.lastgroup, match[match.lastgroup]
        if kind == "double":
            text = re.sub(_EXPANSION, lambda it: it[1].strip("\n") if it[1] else _value(shell, it[2] or it[3]), text)
        elif kind in ("name", "braced"):
            text = _value(shell, text)
        pieces.append((text if kind != "escaped" else text.strip("\n"), kind not in ("name", "braced", "plain")))
    return pieces


def _flatten(node: "Node", redirects: tuple["Node", ...] = ()) -> list[tuple[str, list[_Stage]]]:
    """The pipelines of a list, each with the operator before it. A redirection belongs to the last command, although
    the grammar attaches it to the whole list."""
    nodes = [child for child in node.children if child.is_named and child.type != "comment"]
    own = tuple(child for child in nodes if child.type.endswith("_redirect"))
    if node.type == "list":
        (_, last), *others = _flatten(nodes[-1], redirects)
        return [*_flatten(nodes[0]), (node.children[1].type, last), *others]
    if node.type == "negated_command" or (node.type == "redirected_statement" and nodes[0] not in own):
        return _flatten(nodes[-1] if node.type == "negated_command" else nodes[0], own + redirects)
    if node.type == "pipeline":
        chain = _flatten(nodes[0])
        stages = [stage for part in nodes[1:] for _, pipe in _flatten(part) for stage in pipe]
        chain[-1][1].extend([*stages[:-1], (stages[-1][0], stages[-1][1] + redirects)])
        return chain
    return [("", [(node, redirects)])]


class _Reader:
    """Reads the statements of a shell, one after the other. A method is named by the kind of node that it reads."""

    def __init__(self, folder: str) -> None:
        self.shell: _Shell = {"PWD": folder, "HOME": os.path.expanduser("~"), "__temporary": _TEMPORARY}
        self.paths: dict[str, None] = {}
        self.git: dict[GitCommand, None] = {}
        self.reports = False
        self.made = {_TEMPORARY}
        """Folders that the command itself makes."""
        self.is_sure = False
        """Whether the last command succeeded."""
        self.output: str | None = None
        """What the last command printed, if that is known."""
        self._folder = folder
        self._texts: list[str | None] = []
        self._is_possible = False
        """Whether commands may run otherwise than read, or not at all."""
        self._steps = 0

    def read(self, command: str) -> None:
        """Read commands in a text. Raises _UnreadableError and ImportError."""
        if len(command) > MAX_COMMAND:
            raise _UnreadableError(TOO_LONG)
        code, was_possible = _take_texts(command, self._texts), self._is_possible
        if len(code) > MAX_CODE or "\0" in command:
            raise _UnreadableError(TOO_COMPLEX)
        self._sequence([_parse(code)])
        self._is_possible = was_possible

    def _run(self, node: "Node", redirects: Sequence["Node"] = (), stdin: str | None = None) -> None:
        self._count(1)
        if node.type == "command":
            self._command(node, redirects, stdin)
            return
        self._redirect(redirects)
        read: Any = getattr(self, f"_{node.type}", None)
        if node.type in _LISTS and node.children[0].type != "file_redirect":
            self._list(node)
        elif read is not None:
            read(node)
        else:
            self._sequence(node.children)

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise _UnreadableError(TOO_COMPLEX)

    def _sequence(self, nodes: Sequence["Node"]) -> None:
        """Statements, or the parts of a word or of something else, with commands in them."""
        for node, following in zip(nodes, [*nodes[1:], None], strict=False):
            before = self.shell
            if node.is_error or node.is_missing:
                self.reports = self._is_possible = True
            self._run(node)
            if following is not None and following.type == "&":
                self.shell = before

    def _list(self, node: "Node") -> None:
        """Commands with `&&`, `||` and `|`. Afterwards, what is known is what all ends have in common."""
        ends: list[_Shell] = []
        for operator, stages in _flatten(node):
            before, self.is_sure, stdin = self.shell, False, None
            if operator == "&&" and before.get("__entered"):
                self.shell = {**before, "PWD": before["__entered"]}
            for stage, redirects in stages:
                start, self.output = self.shell, None
                self._run(stage, redirects, stdin)
                stdin = self.output
                if len(stages) > 1:
                    self.shell, self.is_sure = start, False
            ends += [before] if operator == "||" or not self.is_sure else []
        self.shell = _join(self.shell, *ends)

    def _subshell(self, node: "Node") -> None:
        before = self.shell
        self._sequence(node.children)
        self.shell, self.is_sure = before, False

    _command_substitution = _process_substitution = _subshell

    def _branches(self, *parts: Sequence["Node"]) -> None:
        """Parts of which one or none runs."""
        before = self.shell
        ends = [before]
        for part in parts:
            self.shell = before
            self._sequence(part)
            ends.append(self.shell)
        self.shell, self.is_sure = _join(*ends), False

    def _if_statement(self, node: "Node") -> None:
        clauses = [child for child in node.children if child.type in ("elif_clause", "else_clause")]
        self._branches([child for child in node.children if child not in clauses], *([it] for it in clauses))

    def _case_statement(self, node: "Node") -> None:
        self._branches(*([child] for child in node.children))

    def _while_statement(self, node: "Node") -> None:
        for _ in range(2):  # the second time with what the first one changed
            self._branches(node.children)

    _c_style_for_statement = _while_statement

    def _for_statement(self, node: "Node") -> None:
        name, values = _text(node.child_by_field_name("variable")), node.children_by_field_name("value")
        words = [word for value in values for word in self._words(value)]
        if not values or None in words or node.children[0].type == "select":
            self.shell = {**self.shell, name: None}
            self._while_statement(node)
            return
        ends: list[_Shell] = []
        for word in words:
            self.shell = {**self.shell, name: word}
            self._sequence(node.children_by_field_name("body"))
            ends.append(self.shell)
        self.shell = _join(self.shell, *ends)

    def _function_definition(self, node: "Node") -> None:
        """Its body is read where it is defined: nobody knows when it runs. A call is that of an unknown program."""
        was_possible, self._is_possible = self._is_possible, True
        self._branches(node.children)
        self._is_possible = was_possible

    def _compound_statement(self, node: "Node") -> None:
        self._sequence(node.children)
        if node.children[0].type == "((":
            self.forget(re.findall(r"[A-Za-z_]\w*", _text(node)))

    def forget(self, names: Iterable[str | None]) -> None:
        """What these variables are is unknown from now on."""
        found = [re.match(r"[A-Za-z_]\w*", name or "") for name in names]
        self.shell = {**self.shell, **{match[0]: None for match in found if match}}

    def _declaration_command(self, node: "Node") -> None:
        self._sequence(node.children)
        if node.children[0].type != "export":
            self.forget(_text(child) for child in node.children if child.type == "variable_name")

    _unset_command = _declaration_command

    def _variable_assignment(self, node: "Node") -> None:
        self.shell, self.is_sure = {**self.shell, **self._assigned(node)}, True

    def _assigned(self, node: "Node") -> _Shell:
        self._sequence(node.children)
        value = node.child_by_field_name("value")
        is_plain = node.children[1].type == "=" and (value is None or value.type != "array")
        return {_text(node.children[0]).partition("[")[0]: self._content(_text(value)) if is_plain else None}

    def _content(self, word: str) -> str | None:
        """The text of a word that is neither split nor compared with files, such as a value or a here-string."""
        try:
            return "".join(text for text, _ in _pieces(word, self.shell))
        except _UnknownWordError:
            return None

    def _command(self, node: "Node", redirects: Sequence["Node"], stdin: str | None) -> None:
        words, own, assigned = list[str | None](), list["Node"](), dict[str, str | None]()
        for child in node.children:
            if child.type == "variable_assignment":
                assigned |= self._assigned(child)
            elif child.type.endswith("_redirect"):
                own.append(child)
            else:
                words += self._words(child)
        text, more = self._redirect([*own, *redirects])
        if words + more:
            self.execute(words + more, text if text is not None else stdin, assigned)
        else:
            self.shell = {**self.shell, **assigned}

    def _words(self, node: "Node") -> list[str | None]:
        self._sequence([node])
        text = _text(node)
        self._count(100 if re.search(r"[*?\[$]", text) else 1)
        return _expand(text, self.shell)

    def _file_redirect(self, node: "Node") -> None:
        self._redirect([node])

    def _redirect(self, nodes: Sequence["Node"]) -> tuple[str | None, list[str | None]]:
        """Write what redirections write. Returns the text of standard input, if one gives it, and the words behind
        them, which belong to the command."""
        stdin, words = None, list[str | None]()
        for node in nodes:
            self.reports |= node.has_error or node.type == "heredoc_redirect"
            operator = next((child.type for child in node.children if not child.is_named), "")
            parts = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
            first, *more = [self._words(part) for part in parts] or [[]]
            if operator == "<<<":
                stdin = (self._content(_text(parts[0])) or "") + "\n" if parts else None
            elif operator == "<" and first and (first[0] or "").startswith(_MARK):
                stdin = self._texts[int((first[0] or "")[1:])]
            elif operator in _WRITES and not (operator == ">&" and re.fullmatch(r"\d+-?|-", (*first, "")[0] or "")):
                self.write(first[0] if len(first) == 1 else None)
            words += [word for part in more for word in part]
        return stdin, words

    def execute(self, words: Sequence[str | None], stdin: str | None = None, assigned: _Shell | None = None) -> None:
        """Run a simple command."""
        self.output, self.is_sure = None, False
        program = re.sub(r"^(python|pypy|pip)[\d.]+$", r"\1", os.path.basename(words[0] or ""))
        call = _Call(program, list(words[1:]), stdin, assigned or {})
        if program in _PROGRAMS:
            _PROGRAMS[program](self, call)
        elif program == "echo" and None not in call.words and not _has(call.words, "-"):
            self.output = " ".join(filter(None, call.words)) + "\n"
        elif program in READERS:
            self.output = stdin if program == "cat" and not call.words else None
        else:
            self.reports |= not _is_harmless(program, call.words)

    def path(self, word: str | None) -> str | None:
        """The absolute path that a word names, None if only the shell knows it."""
        folder = self.shell["PWD"]
        if not word or (folder is None and not word.startswith("/")):
            return None
        path = os.path.join(folder or "/", word)
        if ".." in path.split("/"):  # behind a symbolic link it is the parent of another folder
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        return os.path.normpath(path)

    def write(self, word: str | None) -> None:
        """A file that certainly changes, unless only the shell knows which."""
        path = self.path(word)
        if path is not None and _NO_FILES.match(path):
            return
        if path is None or self._is_possible or len(self.paths) == MAX_PATHS:
            self.reports |= word != ""
        else:
            self.paths[path] = None

    def run_git(self, words: Sequence[str | None]) -> None:
        self.git[GitCommand(tuple(words), self.shell["PWD"] or self._folder)] = None

    def is_folder(self, path: str | None) -> bool:
        return path is not None and (path in self.made or os.path.isdir(path))

    def enter(self, folder: str | None) -> None:
        """Change the folder. One that does not exist may be made by a program, and is entered if `&&` follows."""
        path = os.path.normpath(os.path.join(self.shell["PWD"] or "", folder)) if folder else None
        path = path if path is not None and os.path.isabs(path) else None
        self.is_sure = self.is_folder(path)
        before, now = self.shell["PWD"], path if self.is_sure else None
        self.shell = {**self.shell, "OLDPWD": before, "PWD": now, "__entered": None if self.is_sure else path}


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
            options[name] = (rest.pop(0) if rest else None) if not equals and name in names else value
        else:
            for index in range(1, len(word)):
                name, value = f"-{word[index]}", word[index + 1 :]
                has_value = name in names or f"{name}?" in names
                is_apart = name in names and not value
                options[name] = (rest.pop(0) if rest else None) if is_apart else value if has_value else ""
                if has_value:
                    break
    return options, operands


def _first(options: Mapping[str, str | None], *names: str) -> str | None:
    """The value of the first of these options that is there, else an empty text."""
    return next((options[name] for name in names if name in options), "")


def _read_cd(reader: _Reader, call: _Call) -> None:
    words = [word for word in call.words if word not in ("-L", "-P", "-e", "--")]
    is_back = words == ["-"] or call.program == "popd" or (call.program == "pushd" and not words)
    reader.enter(reader.shell.get("OLDPWD") if is_back else words[0] if words else reader.shell["HOME"])


def _read_variables(reader: _Reader, call: _Call) -> None:
    """What assigns to the variables that it names, or to the arguments."""
    if call.program in ("set", "shift"):
        reader.shell = {name: value for name, value in reader.shell.items() if not name.isdecimal()}
    elif call.program != "printf" or "-v" in call.words:
        reader.forget([*call.words, "REPLY", "MAPFILE"])


def _read_eval(reader: _Reader, call: _Call) -> None:
    """`eval`, and `trap`, whose command runs later."""
    words = call.words[:1] if call.program == "trap" else call.words
    reader.reports |= None in words
    if words != ["-"] and None not in words:
        reader.read(" ".join(filter(None, words)))


def _read_source(reader: _Reader, call: _Call) -> None:
    reader.reports |= os.path.basename((*call.words, "")[0] or "") not in _ACTIVATIONS


def _read_shell(reader: _Reader, call: _Call) -> None:
    """`bash -c`, or a shell that reads commands from a here-document."""
    options, words = _options(call.words, "-o -O +o +O --rcfile --init-file", stops=True)
    text = (*words, None)[0] if "-c" in options else None if words else call.stdin
    before, arguments = reader.shell, {str(number): word for number, word in enumerate(words[1:])}
    if text is None:
        reader.reports |= "--version" not in options
        return
    kept = {name: before.get(name) for name in ("PWD", "HOME", "__temporary")}
    reader.shell = {**kept, **call.assigned, **arguments}
    reader.read(text)
    reader.shell = before


def _read_wrapper(reader: _Reader, call: _Call) -> None:
    """A program that runs the one behind it."""
    program, words, before = call.program, call.words, reader.shell
    if program in _RUNNERS and (not words or words[0] not in _RUNNERS[program].split()):
        reader.reports |= not _is_harmless(program, words)
        return
    options, words = _options(words[program in _RUNNERS :], _WRAPPERS.get(program, _RUN_OPTIONS), stops=True)
    assigned = dict(call.assigned)
    while program in ("env", "sudo") and words and re.match(r"\w+=", words[0] or ""):
        name, _, assigned[name] = (words.pop(0) or "").partition("=")
    reader.reports |= bool(options.keys() & {"-S", "-o", "--output", "--split-string", "-c"})
    words = words[program == "timeout" :]
    if not words or (program == "command" and options.keys() & {"-v", "-V"}):
        return
    folder = _first(options, "-C", "-D", "--chdir", "--directory")
    if folder != "":
        reader.enter(folder)
    reader.execute(words, call.stdin, assigned)
    if program not in ("builtin", "command", "time", "{"):
        reader.shell, reader.is_sure = before, False


def _read_xargs(reader: _Reader, call: _Call) -> None:
    options, words = _options(call.words, "-n -P -I -L -d -a -s -E --max-args --max-procs -i?", stops=True)
    mark = options.get("-I") or ("{}" if "-i" in options else None)
    if words:
        known = [None if mark and mark in (word or "") else word for word in words]
        reader.execute(known if mark else [*known, None])


def _read_find(reader: _Reader, call: _Call) -> None:
    reader.reports |= _has(call.words, "-delete", "-fprint", "-fls")
    starts = [index for index, word in enumerate(call.words) if word in ("-exec", "-execdir", "-ok", "-okdir")]
    for start, end in zip(starts, [*starts[1:], len(call.words)], strict=True):
        command = [None if "{}" in (word or "") else word for word in call.words[start + 1 : end]]
        stop = next((index for index, word in enumerate(command) if word in (";", "+")), len(command))
        before, reader.shell = (
            reader.shell,
            {**reader.shell, "PWD": None if "dir" in (call.words[start] or "") else reader.shell["PWD"]},
        )
        reader.execute(command[:stop] or [None])
        reader.shell = before


def _read_python(reader: _Reader, call: _Call) -> None:
    """`python -m pytest` is like `pytest`."""
    at = next((index for index, it in enumerate(call.words) if it == "-m" or not (it or "").startswith("-")), 0)
    if call.words[at : at + 1] == ["-m"] and call.words[at + 1 :]:
        reader.execute(call.words[at + 1 :])
    else:
        reader.reports |= not _is_harmless(call.program, call.words)


def _read_git(reader: _Reader, call: _Call) -> None:
    words, variables = call.words, {**reader.shell, **call.assigned}
    for variable, option in (("GIT_WORK_TREE", "--work-tree"), ("GIT_DIR", "--git-dir")):
        words = [option, variables[variable], *words] if variable in variables else words
    _, operands = _options(words, "-C -c --git-dir --work-tree --namespace --exec-path?", stops=True)
    verb = operands[0] if operands else ""
    reader.reports |= verb is None or _has(operands, "--output", "--exec=")
    reader.reports |= verb in _GIT_PROGRAMS and {"--check", "--stat", "--numstat"}.isdisjoint(operands)
    if verb in ("clone", "init", "worktree"):
        _read_made(
            reader,
            call._replace(
                words=[*operands, *(it.removesuffix(".git") for it in [os.path.basename(operands[-1] or "")])]
            ),
        )
    if not _is_harmless("git", operands):
        reader.run_git(words)


def _read_made(reader: _Reader, call: _Call) -> None:
    """`mkdir` changes no file."""
    reader.made |= {path for path in map(reader.path, call.words) if path is not None}


def _read_writer(reader: _Reader, call: _Call) -> None:
    """A program whose options and operands name what it writes."""
    valued, outputs, first = _WRITERS[call.program]
    options, operands = _options(call.words, valued)
    named = [options[name] for name in outputs.split() if options.get(name, "-") != "-"]
    for word in named + (operands[first:] if first is not None else []):
        reader.write(word)
    reader.reports |= call.program == "curl" and bool(options.keys() & {"-O", "--remote-name", "--output-dir"})


def _read_transfer(reader: _Reader, call: _Call) -> None:
    """`cp`, `mv`, `install`, `ln`."""
    options, words = _options(call.words, _TRANSFER)
    goal = _first(options, "-t", "--target-directory")
    is_folder = goal != ""
    is_new = call.program == "ln" and not options.keys() & {"-f", "--force"} and not _has(options, "-f")
    if (
        _CAREFUL.intersection(options) - ({"-n"} if call.program == "ln" else set())
        or is_new
        or len(words) < 2 - is_folder
    ):
        reader.reports = True
        return
    if not is_folder:
        goal = words.pop()
        is_folder = (len(words) > 1 or reader.is_folder(reader.path(goal))) and "-T" not in options
    for source in words:
        name = os.path.basename((source or "").rstrip("/"))
        target = os.path.join(goal, name) if is_folder and name and goal is not None else goal
        if call.program == "mv":
            reader.write(source)
        may_merge = call.program == "cp" and (source is None or reader.is_folder(reader.path(source)))
        if (is_folder and not name) or (may_merge and reader.is_folder(reader.path(target))):
            reader.reports = True  # which files of a folder change depends on those in the other one
        else:
            reader.write(target)


def _read_editor(reader: _Reader, call: _Call) -> None:
    """`sed -i`, `perl -pi -e`, `ruby -i` and `awk -i inplace`."""
    options, files = _options(call.words, _EDITORS[call.program])
    scripts = [options[it] for it in ("-e", "--expression", "-E", "-f", "--file") if options.get(it, "")]
    is_awk, is_sed = call.program.endswith("awk"), call.program.endswith("sed")
    suffix = _first(options, "-i", "--in-place", "--include")
    is_in_place = suffix == "inplace" if is_awk else bool(options.keys() & {"-i", "--in-place"})
    if is_sed and is_in_place and files[:1] == [""]:
        files = files[1:]  # the suffix of BSD
    scripts, files = (scripts, files) if scripts else (files[:1], files[1:])
    for word in files if is_in_place else []:
        reader.write(word)
        if word and suffix and not is_awk:
            reader.write(word + suffix)
    if is_awk or is_sed:
        pattern = _AWK_WRITES if is_awk else _SED_WRITES
        reader.reports |= any(script is not None and re.search(pattern, script) for script in scripts)
        reader.reports |= bool(options.keys() & {"-f", "--file"})
    else:
        reader.reports |= not is_in_place and not _is_harmless(call.program, call.words)


def _read_dd(reader: _Reader, call: _Call) -> None:
    reader.reports |= None in call.words
    for word in call.words:
        if word is not None and word.startswith("of="):
            reader.write(word[3:])


def _read_patch(reader: _Reader, call: _Call) -> None:
    from holdlog.adapters.hooks.files import patched  # which imports this file in a function

    options, operands = _options(call.words, "-i --input -p --strip -d --directory -o --output -r -B -D -F -V -Y -z")
    if call.program != "patch":
        patch = operands[0] if operands else call.stdin
        names = patched(patch or "")
    else:
        pairs = re.findall(_DIFF, call.stdin or "")
        strip = int(_first(options, "-p", "--strip") or "99")
        names = [
            "/".join(it.split("/")[strip if strip < it.count("/") + 1 else -1 :])
            for pair in pairs
            for it in pair
            if it != "/dev/null"
        ]
        names = [str(it) for it in operands[:1] if it] or names
    if "--dry-run" not in options:
        reader.reports |= not names or bool(options.keys() & {"-d", "--directory", "-o", "--output"})
    for name in names if not options.keys() & {"--dry-run", "-d", "--directory", "-o", "--output"} else []:
        reader.write(name)


_PROGRAMS: Final[Mapping[str, Callable[[_Reader, _Call], None]]] = {
    name: read
    for names, read in (
        (" ".join({**_WRAPPERS, **_RUNNERS}), _read_wrapper),
        (" ".join(_WRITERS), _read_writer),
        (" ".join(_EDITORS), _read_editor),
        (". source", _read_source),
        ("apply_patch applypatch patch", _read_patch),
        ("bash dash ksh sh zsh", _read_shell),
        ("cd popd pushd", _read_cd),
        ("cp install ln mv", _read_transfer),
        ("dd", _read_dd),
        ("eval trap", _read_eval),
        ("find", _read_find),
        ("getopts let mapfile printf read readarray set shift", _read_variables),
        ("git", _read_git),
        ("mkdir", _read_made),
        ("pypy python", _read_python),
        ("xargs", _read_xargs),
    )
    for name in names.split()
}
