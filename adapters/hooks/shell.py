"""What a shell command does to files, read from its syntax tree: what is certain is named, what only a shell knows is
compared afterwards. Standard library only; tree-sitter is imported in the function that parses. Pure but for globs and
folders, which are looked up in the worktree."""

import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.hooks.tools import MAX_PATHS, GitCommand, Targets, list_patched
from holdlog.adapters.hooks.words import (
    MARK,
    SIMPLE_QUOTES,
    Shell,
    UnclearError,
    Words,
    expand,
    join,
    read_options,
    take_texts,
)
from holdlog.adapters.operating_system.processes import NAMED

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_COMMAND: Final = 1_000_000  # characters of a shell command that is read
MAX_TEXT: Final = 20_000  # characters without here-documents: the parser is slow on some broken input
MAX_CODE: Final = 10_000  # of these, without quoted texts
MAX_STEPS: Final = 50_000  # nodes of the syntax tree that are read, those of a loop each time; a glob counts 100
UNPARSED: Final = "shell commands are not guarded: tree-sitter cannot be imported"
TOO_LONG: Final = f"the command has more than {MAX_COMMAND:,} characters"
TOO_COMPLEX: Final = "the command is too complex to be read"


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _table(rows: str) -> dict[str, str]:
    return {name.strip(): rest.strip() for name, _, rest in (row.partition(":") for row in rows.split("|"))}


READERS: Final = _set(
    """: [ [[ } base64 basename bg break cat cd chgrp chmod chown cksum cmp column comm continue cut date df diff
    dig dirname dirs du echo egrep exit expr false fg fgrep file fold free getent grep groups head help hexdump
    hostname id join jq kill last ls lsof man md5sum mktemp nl nproc od paste pgrep ping pkill printenv
    printf ps pwd readlink realpath return rev rg rmdir seq set sha1sum sha256sum shift sleep stat strings sum sync tac
    tail test times top tput tr true type ulimit umask uname uptime wait wc which who whoami zcat zgrep"""
)
"""Programs that change no file, whatever their arguments are. Modes, owners and folders do not count as content."""
CHECKERS: Final = _set(
    """basedpyright ctest dmypy eslint flake8 javac jest mocha mypy oxlint phpunit py.test pycodestyle
    pyflakes pylint pyright pytest rspec shellcheck staticcheck stylelint tree tsc ty unittest vitest yamllint"""
)
"""Compilers, linters and test runners: they change no source, unless an option says so."""
_VERBS: Final = _table(  # subcommands that are like CHECKERS
    """bun: test | cargo: b bench build c check clippy doc metadata nextest t test tree | deno: check lint test |
    dotnet: build test | go: build doc env list test version vet | gradle: build check test | mvn: compile test verify |
    npm: ls outdated t test view | pip: check freeze list show | pnpm: ls t test | ruff: check rule | yarn: test"""
)
_WRITING: Final = ("--fix", "--write", "--update", "--snapshot-update", "--in-place", "--inplace", "--add-noqa", "-u")
_REWRITING: Final = ("--inline-snapshot", "--force-regen", "--regen")  # of plugins of pytest
_UNLIKE_TESTS: Final = "fix|update|write|gen|snap"  # in the names of scripts: test:update
_OUTPUTS: Final = ("-o", "--out", "--junit", "--log-file", "--debug", "--report", "--html", "--xml")
_FORMATTERS: Final = ("autopep8", "black", "cargo", "clang-format", "isort", "prettier", "ruff", "rustfmt", "yapf")
_QUESTIONS: Final = ("--version", "--help", "-V", "-h", "-v", "version", "help")
_WRAPPERS: Final = _table(  # programs that run the one behind them, and options with a value; `time {` is two words
    """builtin | bundle exec | bunx | busybox | command | coproc | doas: -u | env: -u --unset -C --chdir | exec: -a |
    hatch run | ionice: -c -n | nice: -n --adjustment | nohup | npx: -p --package | pdm run | pipenv run | pnpm exec |
    pnpm dlx | poetry run: --directory | setsid | stdbuf: -i -o -e --input --output --error |
    sudo: -u --user -g --group -h --host -p --prompt -D --chdir -R -T -U | time: -f -o --format --output |
    timeout: -s --signal -k --kill-after | uvx: --from --with -p --python | yarn exec | { |
    xargs: -n -P -I -L -d -a -s -E --max-args --max-procs | flock: -w --timeout -E | watch: -n |
    uv run: -p --python --with --extra --group --package --env-file --directory --project --with-editable |
    holdlog run: --claim --agent --by --lease --lease-seconds --wait --wait-seconds --mode --note --outcome --db"""
)
_WRITERS: Final = _table(  # from which operand on all are written, options with a value; `-o` names a file, too
    """dd: 9 | json.tool: 1 --indent | rm: 0 | shred: 0 -n -s --size --iterations | tee: 0 | unlink: 0 |
    curl: 9 -A -b -C -d -e -E -F -H -K -m -o -P -Q -r -t -T -u -U -w -x -X -y -Y -z --output --header |
    sort: 9 -k -t -S -T -o --key --field-separator --output | truncate: 0 -s --size -r --reference | uniq: 1 -f -s -w"""
)
_CURL_WRITES: Final = (
    *("-O", "-c", "-D", "--st", "--tr", "--remote-n", "--cookie-j", "--dump", "--etag-s", "--lib", "--hsts", "--alt"),
)
_EDITORS: Final = {"sed": "-e --expression -f --file -l --line-length -i?", "perl": "-e -E -i? -M? -I? -F?"}
_CAREFUL: Final = ("-u", "-d", "--no-clobber", "--update", "--parents", "--directory")
_GIT_READERS: Final = _set("blame cat-file describe diff grep log ls-files rev-list rev-parse shortlog show status")
_GIT_PROGRAMS: Final = ("apply", "bisect", "config", "filter-branch", "submodule")  # they write what others say
_ACTIVATIONS: Final = ("activate", ".bashrc", ".zshrc", ".profile", "nvm.sh")  # scripts that change no file
_NO_FILES: Final = r"/dev/(?!shm/)|/proc/(?!self/(?:cwd|root)/)"
_TEMPORARY: Final = "/dev/fd/temporary"  # in place of what mktemp prints: a path that nobody holds
_WRITES: Final = (">", ">>", ">|", "&>", "&>>", ">&")
_LIKE: Final = _table(
    """case_statement: if_statement | c_style_for_statement: while_statement | command_substitution: subshell |
    process_substitution: subshell | negated_command: list | pipeline: list | redirected_statement: list"""
)
_TO_NOWHERE: Final = r"(?:\d|&)?>>?\s*/dev/null(?![\w./-])|\d?>&\d(?!\S)"
_SED_WRITES: Final = (
    r"(?<![A-Za-z])[gpiIM\d]*[wW]\s|/[gpiIM\d]*e\s*(?:$|[;}\n])"
    r"|(?:^|[;{}\n])\s*[\d,$]*\s*(?:/[^/\n]{0,200}/)?\s*!?(?:[wW]\S|e(?:\s|$))"
    r"|s([^\w\s])(?:(?!\1).){0,200}\1(?:(?!\1).){0,200}\1[gpiIM\d]*[wW]\S"
)
_AWK_WRITES: Final = r'>>?\s*["(a-zA-Z$]|system\s*\(|\|\s*"|\|&|\|\s*getline'
_Stage = tuple["Node", tuple["Node", ...]]  # a command of a pipeline, and redirections that the grammar puts elsewhere


def read_shell(command: str, folder: str) -> Targets:
    """Read a shell command that runs in `folder`. A git command in a folder that only the shell knows counts as one in
    `folder`: there, a wrong denial is better than a loss without a word."""
    if len(command) > MAX_COMMAND:
        return Targets(reports=True, problem=TOO_LONG)
    if _is_silent(command):
        return Targets()
    reader, problem = _Reader(os.path.abspath(folder)), ""
    try:
        reader.read(command.replace(MARK, "\0"))
    except ImportError:
        problem = UNPARSED
    except (UnclearError, RecursionError):
        problem = TOO_COMPLEX
    reports = reader.reports or problem != ""
    return Targets(tuple(reader.paths), tuple(reader.git), reports, problem, tuple(reader.own))


def _load_grammar() -> object:
    """The grammar of tree-sitter-bash without its package, which imports more than a hook has time for. Raises
    ImportError."""
    package = find_spec("tree_sitter_bash")
    folders = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("tree_sitter_bash._binding", folders)
    if spec is None or spec.loader is None:
        raise ImportError
    binding = module_from_spec(spec)
    spec.loader.exec_module(binding)
    grammar: object = binding.language()
    return grammar


def _is_silent(command: str) -> bool:
    """Whether no program of the command changes files, as seen without a parser."""
    if len(command) > MAX_TEXT:
        return False
    text = re.sub(SIMPLE_QUOTES, "Q", command) if "'" in command or '"' in command else command
    text = re.sub(_TO_NOWHERE, " ", text) if ">" in text else text
    if any(it in text for it in (">", '"', "'", "\\", "#", "<<")):
        return False
    commands = [part.split() for part in re.split(r"[;&|\n(){}`]+", text)]
    return all(not it or it[0] in READERS or _is_harmless(it[0], it[1:]) for it in commands)


def _is_harmless(program: str, words: Words) -> bool:
    """Whether a program only checks, compiles or tests, or reads from git."""
    if program == "git":
        return bool(words) and words[0] in _GIT_READERS and not _has(words, "--output", "-O", "--open")
    is_dry = program in _FORMATTERS and not {"--check", "--diff", "--dry-run", "--list-different"}.isdisjoint(words)
    is_dry = is_dry and not _has(words, "--write", "-w") and (program != "cargo" or words[0] == "fmt")
    if is_dry or (len(words) == 1 and words[0] in _QUESTIONS and "/" not in program):
        return True
    operands = [word for word in words if word is None or not word.startswith(("-", "+"))]
    if program in ("npm", "pnpm", "yarn", "bun") and operands[:1] == ["run"]:
        return _has(operands[1:2], "test") and not re.search(_UNLIKE_TESTS, operands[1] or "")
    tasks = operands if program in ("gradle", "mvn") else operands[:1]
    is_verb = bool(operands) and {*tasks} <= {*_VERBS.get(program, "").split()}
    return (program in CHECKERS or is_verb) and not _has(words, *_WRITING, *_OUTPUTS, *_REWRITING)


def _has(words: Iterable[str | None], *beginnings: str) -> bool:
    return any(word is not None and word.startswith(beginnings) for word in words)


def _decode(node: "Node | None") -> str:
    return (node.text or b"").decode(errors="replace") if node is not None else ""


def _flatten(node: "Node", redirects: tuple["Node", ...] = ()) -> list[tuple[str, list[_Stage]]]:
    """The pipelines of a list, each with the operator before it. Redirections are those of the last command."""
    nodes = [child for child in node.children if child.is_named and child.type != "comment"]
    own = tuple(child for child in nodes if child.type.endswith("_redirect"))
    if node.type == "list":
        (_, last), *others = _flatten(nodes[-1], redirects)
        return [*_flatten(nodes[0]), (node.children[1].type, last), *others]
    if node.type in ("negated_command", "redirected_statement"):
        return _flatten(nodes[-1] if node.type == "negated_command" else nodes[0], own + redirects)
    if node.type == "pipeline":
        chain = _flatten(nodes[0])
        stages = [stage for part in nodes[1:] for _, pipe in _flatten(part) for stage in pipe]
        chain[-1][1].extend([*stages[:-1], (stages[-1][0], stages[-1][1] + redirects)])
        return chain
    return [("", [(node, redirects)])]


class _Reader:
    """Reads the statements of a shell. A method is named by the kind of node that it reads, or by a program."""

    def __init__(self, folder: str) -> None:
        self.shell: Shell = {"PWD": folder, "HOME": os.path.expanduser("~"), "__temporary": _TEMPORARY}
        self.paths: dict[str, None] = {}
        self.git: dict[GitCommand, None] = {}
        self.own: list[tuple[str | None, ...]] = []
        self.reports = False
        self._folder = folder
        self._made = {_TEMPORARY}  # folders that the command itself makes
        self._texts: list[str | None] = []
        self._input: str | None = None  # the standard input of the command, and its output, if they are known
        self._output: str | None = None
        self._assigned: Shell = {}  # the variables before the command
        self._is_sure = False  # whether the last command succeeded
        self._is_possible = False  # whether commands may run otherwise than read, or not at all
        self._steps = 0

    def read(self, command: str) -> None:
        """Read commands in a text. Raises UnclearError and ImportError."""
        from tree_sitter import Language, Parser

        code = re.sub(r"/\$([A-Za-z_]\w*)", r"/${\1}", take_texts(command, self._texts))  # the grammar splits it
        if len(code) > MAX_TEXT or len(re.sub(SIMPLE_QUOTES, "", code)) > MAX_CODE or "\0" in command:
            raise UnclearError
        parser = Parser(Language(_load_grammar()))
        self._sequence([parser.parse(code.encode(errors="backslashreplace")).root_node])

    def _run(self, node: "Node", redirects: Sequence["Node"] = (), stdin: str | None = None) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise UnclearError
        if node.type == "command":
            self._command(node, redirects, stdin)
        elif node.type.endswith("_redirect"):
            self._redirect([node, *redirects])
        else:
            self._redirect(redirects)
            read: Any = getattr(self, f"_{_LIKE.get(node.type, node.type)}", lambda it: self._sequence(it.children))
            read(node)

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
        ends: list[Shell] = []
        for operator, stages in _flatten(node):
            before, self._is_sure, stdin = self.shell, False, None
            for stage, redirects in stages:
                start, self._output = self.shell, None
                self._run(stage, redirects, stdin)
                stdin = self._output
                if len(stages) > 1:
                    self.shell, self._is_sure = start, False
            ends += [before] if operator == "||" or not self._is_sure else []
        self._steps += len(self.shell)
        self.shell = join(self.shell, *ends)

    def _subshell(self, node: "Node") -> None:
        before = self.shell
        self._sequence(node.children)
        self.shell, self._is_sure = before, False

    def _branches(self, *parts: Sequence["Node"]) -> None:
        """Parts of which one or none runs."""
        before = self.shell
        ends = [before]
        for part in parts:
            self.shell = before
            self._sequence(part)
            ends.append(self.shell)
        self.shell, self._is_sure = join(*ends), False

    def _if_statement(self, node: "Node") -> None:
        clauses = [it for it in node.children if it.type in ("elif_clause", "else_clause", "case_item")]
        self._branches([child for child in node.children if child not in clauses], *([it] for it in clauses))

    def _while_statement(self, node: "Node") -> None:
        for _ in range(2):  # the second time with what the first one changed
            self._branches(node.children)

    def _for_statement(self, node: "Node") -> None:
        name, values = _decode(node.child_by_field_name("variable")), node.children_by_field_name("value")
        words = [word for value in values for word in self._words(value)]
        if not values or None in words or node.children[0].type == "select":
            self.shell = {**self.shell, name: None}
            self._while_statement(node)
            return
        ends: list[Shell] = []
        for word in words:
            self.shell = {**self.shell, name: word}
            self._sequence(node.children_by_field_name("body"))
            ends.append(self.shell)
        self.shell = join(self.shell, *ends)

    def _function_definition(self, node: "Node") -> None:
        """Its body is read where it is defined: nobody knows when it runs. A call is that of an unknown program."""
        was_possible, self._is_possible = self._is_possible, True
        self._branches(node.children)
        self._is_possible = was_possible or node.has_error

    def _compound_statement(self, node: "Node") -> None:
        self._sequence(node.children)
        self._forget("", re.findall(r"[A-Za-z_]\w*", _decode(node)) if node.children[0].type == "((" else [])

    def _forget(self, program: str, words: Words) -> None:
        """What these variables are is unknown from now on."""
        matches = [re.match(r"[A-Za-z_]\w*", word or "") for word in (*words, "REPLY", "MAPFILE")]
        self.shell = {**self.shell, **{match[0]: None for match in matches if match}}

    def _unset_command(self, node: "Node") -> None:
        self._forget("", [_decode(child) for child in node.children[1:]])

    def _variable_assignment(self, node: "Node") -> None:
        self._sequence(node.children)
        value, self._is_sure = node.child_by_field_name("value"), True
        is_plain = node.children[1].type == "=" and (value is None or value.type != "array")
        content = expand(_decode(value), self.shell, is_value=True)[0] if is_plain else None
        self.shell = {**self.shell, _decode(node.children[0]).partition("[")[0]: content}

    def _command(self, node: "Node", redirects: Sequence["Node"], stdin: str | None) -> None:
        kinds = ("variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect")
        words = [word for child in node.children if child.type not in kinds for word in self._words(child)]
        text, more = self._redirect([*(child for child in node.children if child.type in kinds[1:]), *redirects])
        before = self.shell
        self._sequence([child for child in node.children if child.type == kinds[0]])
        if words + more:
            self._assigned = {it: value for it, value in self.shell.items() if value != before.get(it)}
            self._input, self.shell = text if text is not None else stdin, before
            self._execute(words + more)

    def _words(self, node: "Node") -> list[str | None]:
        self._sequence([node])
        text = _decode(node)
        self._steps += 100 if re.search(r"[*?\[$]", text) else 1
        return expand(text, self.shell)

    def _redirect(self, nodes: Sequence["Node"]) -> tuple[str | None, list[str | None]]:
        """Write what redirections write. Returns the standard input that one gives, and words behind them."""
        stdin, words = None, list[str | None]()
        for node in nodes:
            self.reports |= node.has_error or node.type == "heredoc_redirect"
            operator = next((child.type for child in node.children if not child.is_named), "")
            parts = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
            first, *more = [self._words(part) for part in parts] or [[]]
            if operator == "<<<":
                stdin = f"{content}\n" if (content := expand(_decode(parts[-1]), self.shell, True)[0]) else None
            elif operator == "<" and first and (first[0] or "").startswith(MARK):
                stdin = self._texts[int((first[0] or "")[1:])]
                self.reports |= stdin is None
            elif operator in _WRITES and not (operator == ">&" and re.fullmatch(r"\d+-?|-", (*first, "")[0] or "")):
                self._write(first[0] if len(first) == 1 else None)
            words += [word for part in more for word in part]
        return stdin, words

    def _path(self, word: str | None) -> str | None:
        """The absolute path that a word names, None if only the shell knows it."""
        path = os.path.join(self.shell["PWD"] or "", word or "")
        if not word or not os.path.isabs(path):
            return None
        if ".." in path.split("/"):  # behind a symbolic link it is the parent of another folder
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        return os.path.normpath(path)

    def _write(self, word: str | None) -> None:
        """A file that certainly changes, unless only the shell knows which."""
        path = self._path(word)
        if path is not None and re.match(_NO_FILES, path):
            return
        if path is None or self._is_possible or len(self.paths) == MAX_PATHS:
            self.reports |= word != ""
        else:
            self.paths[path + "/" * (path in self._made)] = None

    def _is_folder(self, path: str | None) -> bool:
        return path is not None and (path in self._made or os.path.isdir(path))

    def _execute(self, words: Words) -> None:
        """Run a simple command."""
        self._output, self._is_sure = None, False
        name = re.sub(r"^(python|pypy|pip)[\d.]+$", r"\1", os.path.basename(words[0] or ""))
        pair = f"{name} {words[1]}" if len(words) > 1 else name
        if pair == "python -m" and words[2:]:  # `python -m pytest` is like `pytest`
            self._execute(words[2:])
        elif name in _PROGRAMS:
            _PROGRAMS[name](self, name, list(words[1:]))
        elif pair in _WRAPPERS:
            self._wrapper(pair, words[2:])
        elif name in READERS:
            self._output = self._input if name == "cat" and not words[1:] else None
        else:
            is_script = "/" in (words[0] or "") and "-v" in words  # which may be verbose
            self.reports |= is_script or not _is_harmless(name, words[1:])

    def _wrapper(self, program: str, words: Words) -> None:
        """A program that runs the one behind it, xargs with other words."""
        before = self.shell
        options, command = read_options(words, _WRAPPERS[program], stops=True)
        self.reports |= not options.keys().isdisjoint(("-S", "-o", "--output", "--split-string", "-c"))
        while program in ("env", "sudo") and command[1:] and re.match(r"\w+=", command[0] or "A="):  # also A="$B"
            self.reports |= command[0] is None  # or it is the program
            self._assigned = {**self._assigned, **dict([(command.pop(0) or "").partition("=")[::2]])}
        command = command[program in ("timeout", "flock") :]
        if program == "xargs" and command:
            command = [*(None if (options.get("-I") or "{}") in (it or "") else it for it in command), None]
        for folder in [options[it] for it in ("-C", "-D", "--chdir", "--directory") if it in options]:
            self._enter(folder)
        if command and not (program == "command" and not options.keys().isdisjoint(("-v", "-V"))):
            self._execute(command)
        if program not in ("builtin", "command", "time", "{"):
            self.shell, self._is_sure = before, False

    def _find(self, program: str, words: Words) -> None:
        self.reports |= _has(words, "-delete", "-fprint", "-fls", "-execdir", "-okdir")
        folders = [*itertools.takewhile(lambda it: it is None or it[:1] not in ("-", "(", "!"), words)]
        if list(words[len(folders) :]) in (["-delete"], ["-type", "f", "-delete"]):
            for word in folders or ["."]:
                self._write(word)
        for index, word in enumerate(words):
            if word in ("-exec", "-execdir", "-ok", "-okdir"):
                end = next((at for at, it in enumerate(words) if at > index and it in (";", "+")), len(words))
                self._wrapper("xargs", words[index + 1 : end])

    def _enter(self, folder: str | None) -> None:
        """Change the folder; to which is unknown if it does not exist now."""
        path = os.path.normpath(os.path.join(self.shell["PWD"] or "", folder)) if folder else ""
        self._is_sure = self._is_folder(path) and os.path.isabs(path)
        self.shell = {**self.shell, "OLDPWD": self.shell["PWD"], "PWD": path if self._is_sure else None}

    def _cd(self, program: str, words: Words) -> None:
        words = [word for word in words if word not in ("-L", "-P", "-e", "--")]
        is_back = words == ["-"] or program == "popd" or (program == "pushd" and not words)
        self._enter(self.shell.get("OLDPWD") if is_back else words[0] if words else self.shell["HOME"])

    def _eval(self, program: str, words: Words) -> None:
        """`eval`, `trap`, whose command runs later, and `source`."""
        words = words[:1] if program == "trap" else words
        if program in (".", "source") or None in words:
            self.reports |= os.path.basename((*words, "")[0] or "") not in _ACTIVATIONS
        elif words != ["-"]:
            self.read(" ".join(filter(None, words)))

    def _bash(self, program: str, words: Words) -> None:
        """`bash -c`, or a shell that reads commands from a here-document."""
        options, words = read_options(words, "-o -O --rcfile --init-file", stops=True)
        text = (*words, None)[0] if "-c" in options else None if words else self._input
        self.reports |= text is None
        before = self.shell
        self.shell = {**{it: before[it] for it in ("PWD", "HOME", "__temporary")}, **self._assigned}
        self.read(text or "")
        self.shell = before

    def _git(self, program: str, words: Words) -> None:
        variables = {**self.shell, **self._assigned}
        for variable, option in (("GIT_WORK_TREE", "--work-tree"), ("GIT_DIR", "--git-dir")):
            words = [option, variables[variable], *words] if variable in variables else words
        options, operands = read_options(words, "-C -c --git-dir --work-tree --namespace --exec-path?", stops=True)
        verb = operands[0] if operands else ""
        self.reports |= verb is None or _has(operands, "--output", "--ex", "-O", "--open", "-x", "--upload")
        self.reports |= _has(options, "-c", "--config-env") or _has(self._assigned, "GIT_")  # programs that git starts
        is_dry = not {"--check", "--stat", "--numstat"}.isdisjoint(operands) and "--apply" not in operands
        self.reports |= verb in _GIT_PROGRAMS and not is_dry
        if verb in ("clone", "init", "worktree"):
            self._mkdir(program, [*operands, os.path.basename(operands[-1] or "").removesuffix(".git")])
        if not _is_harmless("git", operands):
            self.git[GitCommand(tuple(words), self.shell["PWD"] or self._folder)] = None

    def _holdlog(self, program: str, words: Words) -> None:
        known = {**self.shell, **self._assigned}
        conversation = next((known[name] for name in NAMED if known.get(name)), None)
        self.own.append((known.get("HOLDLOG_AGENT"), conversation, *words))
        operands = read_options(words, "--db", stops=True)[1]
        if operands[:1] == ["run"]:
            self._wrapper("holdlog run", operands[1:])

    def _mkdir(self, program: str, words: Words) -> None:
        self._made |= {path for path in map(self._path, words) if path is not None}

    def _writer(self, program: str, words: Words) -> None:
        """Programs whose options and operands name what they write."""
        first, *valued = _WRITERS[program].split()
        options, operands = read_options(words, " ".join(valued))
        named = [options[name] for name in ("-o", "--output") if name in valued and options.get(name, "-") != "-"]
        named += [it and it[3:] for it in operands if program == "dd" and (it or "of=").startswith("of=")]
        for word in named + operands[int(first) :]:
            self._write(word)
        self.reports |= _has(options, "--o") or (program == "curl" and _has(options, *_CURL_WRITES))

    def _copy(self, program: str, words: Words) -> None:
        """`cp`, `mv`, `install`, `ln`."""
        options, sources = read_options(words, "-t --target-directory -S --suffix -m --mode -o --owner -g --group")
        goal = options.get("-t", options.get("--target-directory", ""))
        is_new = options.keys().isdisjoint(("-f", "--force")) if program == "ln" else "-n" in options
        if is_new or not options.keys().isdisjoint(_CAREFUL) or len(sources) < (2 if goal == "" else 1):
            self.reports = True  # it may change nothing, or other files
            return
        is_folder = goal != ""
        if not is_folder:
            goal = sources.pop()
            is_folder = (len(sources) > 1 or self._is_folder(self._path(goal))) and "-T" not in options
        for source in sources:
            name = os.path.basename((source or "").rstrip("/"))
            target = os.path.join(goal, name) if is_folder and name and goal is not None else goal
            if program == "mv":
                self._write(source)
            is_tree = program != "ln" and self._is_folder(self._path(source))
            may_merge = program == "cp" and (source is None or is_tree)
            is_unknown = (is_folder and not name) or (may_merge and self._is_folder(self._path(target)))
            self._made |= {self._path(target) or ""} if is_tree else set()
            self._write(target if not is_unknown else None)  # what changes depends on the files that are there

    def _sed(self, program: str, words: Words) -> None:
        """`sed -i`, and `perl -pi -e`; other programs in Perl may write what they like."""
        options, files = read_options(words, _EDITORS[program])
        suffix = options.get("-i", next((value for name, value in options.items() if name.startswith("--i")), None))
        files = files[1:] if suffix == "" and files[:1] == [""] else files  # the suffix of BSD
        scripts = [options[it] for it in ("-e", "--expression", "-E", "-f", "--file") if options.get(it, "") != ""]
        scripts, files = (scripts, files) if scripts else (files[:1], files[1:])
        for word in files if suffix is not None else []:
            self._write(word)
            self._write(word + suffix if word and suffix else "")
        script = "\n".join(filter(None, scripts))
        is_plain = not re.search(_SED_WRITES, script) and "-f" not in options and words[:1] != [None]
        self.reports |= not (is_plain if program == "sed" else suffix is not None or _is_harmless(program, words))

    def _awk(self, program: str, words: Words) -> None:
        self.reports |= any(word in (None, "-f", "-i") or re.search(_AWK_WRITES, word or "") for word in words)

    def _patch(self, program: str, words: Words) -> None:
        options, operands = read_options(words, "-i -p -d -o -r -B -D -F -V -Y -z")
        names = operands[:1] if program == "patch" and operands else list_patched((*operands, self._input)[0] or "")
        for name in names:
            self._write(name if not options.keys() - {"-p"} else None)
        self.reports |= not names


_PROGRAMS: Final[Mapping[str, Callable[[_Reader, str, Words], None]]] = {
    **{name: _Reader._wrapper for name in _WRAPPERS if " " not in name},
    **dict.fromkeys(_WRITERS, _Reader._writer),
    **dict.fromkeys(("apply_patch", "applypatch", "patch"), _Reader._patch),
    **dict.fromkeys(("awk", "gawk", "mawk"), _Reader._awk),
    **dict.fromkeys(("bash", "dash", "ksh", "sh", "zsh"), _Reader._bash),
    **dict.fromkeys(("cd", "popd", "pushd"), _Reader._cd),
    **dict.fromkeys(("cp", "install", "ln", "mv"), _Reader._copy),
    **dict.fromkeys(("eval", "trap", ".", "source"), _Reader._eval),
    **dict.fromkeys(("getopts", "let", "mapfile", "read", "readarray"), _Reader._forget),
    **dict.fromkeys(_EDITORS, _Reader._sed),
    "find": _Reader._find,
    "git": _Reader._git,
    "holdlog": _Reader._holdlog,
    "mkdir": _Reader._mkdir,
}
