"""The words of a shell: how it expands them, as far as that is known without it, and how programs read their options.
Globs and folders are looked up in the worktree."""

import glob
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from holdlog.adapters.operating_system.location import find_top

MAX_WORDS: Final = 500  # words that a glob results in
MAX_VALUE: Final = 4_096  # characters of a variable: A=$A$A doubles it
MARK: Final = "\x01"  # begins what a here-document in the code is replaced by; its number follows
SIMPLE_QUOTES: Final = r"""'[^']*'|"[^"$`\\]*\""""
_HERE: Final = r"""(?<!<)<<(-?)[ \t]*(\\?[\w.+-]+|'[^'\n]+'|"[^"\n]+")"""
_PRINTED: Final = r"\$\(\s*(?:(pwd)|(git rev-parse --show-toplevel)|mktemp(?: -d| -t [\w.-]+)*)\s*\)"
_PIECE: Final = (
    r"""(?s)\\(?P<escaped>.)|'(?P<single>[^']*)'|\$'(?P<ansi>[^'\\]*)'|\$?"(?P<double>(?:[^"\\`$]|\\.|\$(?!\())*)\""""
    r"""|\$(?P<name>\w+)|\$\{(?P<braced>\w+)\}|(?P<plain>(?:[^\\'"$`(){]|\{(?![^{}]*(?:,|\.\.)))+|\$(?![\w({@*\#?$'!-]))"""
)
_EXPANSION: Final = r"""\\([$`"\\\n])|\$(\w+)|\$\{(\w+)\}|(\$[{@*\#?$!-])"""
_ODD_GLOB: Final = r"\[\^|\[\[(?!\])|\[:|\*\*"  # what Python reads in another way than a shell
Words = Sequence[str | None]  # None for a word that only the shell knows
Shell = Mapping[str, str | None]  # the variables of a shell, None if only it knows the value; its folder is PWD


class UnclearError(Exception):
    """Only a shell knows what this is."""


def take_texts(command: str, texts: list[str | None]) -> str:
    """Replace here-documents by marks, because the grammar knows few forms of them and the parser is fast on short
    input. Adds what they contain to `texts`, None if the shell expands something in it."""
    lines, ends, code, at = command.split("\n"), dict[str, list[int]](), list[str](), 0
    for number in range(len(lines) - 1, -1, -1):
        for key in (lines[number].rstrip("\r"), "-" + lines[number].strip("\t\r")):
            ends.setdefault(key, []).append(number)
    while at < len(lines):
        line, at = lines[at], at + 1
        for match in [*re.finditer(_HERE, line)]:
            name = match[2].strip("'\"\\")
            numbers = ends.get(match[1] + name, [])
            while numbers and numbers[-1] < at:
                numbers.pop()
            if numbers:
                body, at = lines[at : numbers[-1]], numbers[-1] + 1
                text = "".join(f"{part.lstrip(chr(9)) if match[1] else part}\n" for part in body)
                line = line.replace(match[0], f"< {MARK}{len(texts)}", 1)
                is_plain = name != match[2] or not re.search(r"[$`\\]", text)
                texts.append(text if is_plain else None)
                if not is_plain and len(text) < 2_000 and re.search(r"\$\(|`", text):  # its commands run before
                    code.append(': "' + text.replace('"', '\\"') + '"')
        code.append(line)
    return "\n".join(code)


def join(first: Shell, *others: Shell) -> Shell:
    """What is known of a shell that is one of these."""
    names = {name: None for shell in (first, *others) for name in shell}
    return {name: first.get(name) if all(first.get(name) == it.get(name) for it in others) else None for name in names}


def _read_value(shell: Shell, name: str) -> str:
    """The value of a variable, or the worktree of git that contains the folder. Raises UnclearError."""
    value = shell.get(name)
    if name == "__toplevel":
        value = find_top(shell["PWD"] or "/")
    if value is None or len(value) > MAX_VALUE:
        raise UnclearError
    return value


def expand(word: str, shell: Shell, is_value: bool = False) -> list[str | None]:
    """The words that a word results in. `is_value`: it is neither split nor compared with files, as a here-string."""
    try:
        if is_value:
            return [_unescape("".join(_read_pieces(word, shell)))]
        fields = re.split(r"\0+", "".join(_read_pieces(word, shell, "\0")))
        return [
            name for field in fields if field or re.search("['\"]", word) for name in _list_matches(field, shell["PWD"])
        ]
    except UnclearError:
        return [None]


def _unescape(pattern: str) -> str:
    return re.sub(r"\[([*?[])\]", r"\1", pattern)


def _list_matches(pattern: str, folder: str | None) -> list[str]:
    """The files that a pattern matches now. Raises UnclearError."""
    if not re.search(r"[*?\[]", re.sub(r"\[[*?[]\]", "", pattern)):
        return [_unescape(pattern)]
    if re.search(_ODD_GLOB, pattern) or (folder is None and not pattern.startswith("/")):
        raise UnclearError
    names = list(itertools.islice(glob.iglob(pattern, root_dir=folder), MAX_WORDS + 1))
    if not 0 < len(names) <= MAX_WORDS:  # none: a former command may make some
        raise UnclearError
    return sorted(names)


def _read_pieces(word: str, shell: Shell, blank: str = r"\g<0>") -> Iterator[str]:
    """The parts of a word as patterns, with what is quoted escaped. `blank`: what blanks in values become. Raises
    UnclearError."""
    word = re.sub(_PRINTED, lambda it: f"${{{'PWD' if it[1] else '__toplevel' if it[2] else '__temporary'}}}", word)
    word = re.sub(r"^~(?=/|$)", "${HOME}", word)
    at = 0
    while at < len(word):
        match = re.compile(_PIECE).match(word, at)
        if match is None or match.lastgroup is None or word.startswith("~"):
            raise UnclearError
        at, kind, text = match.end(), match.lastgroup, match[match.lastgroup]
        if kind == "double":
            text = re.sub(
                _EXPANSION, lambda it: it[1].strip("\n") if it[1] else _read_value(shell, it[2] or it[3]), text
            )
        elif kind in ("name", "braced"):
            text = re.sub(r"\s+", blank, _read_value(shell, text))
        text = text.strip("\n") if kind == "escaped" else text
        yield text if kind in ("name", "braced", "plain") else re.sub(r"([*?[])", r"[\1]", text)


def read_options(words: Words, valued: str, stops: bool = False) -> tuple[dict[str, str | None], list[str | None]]:
    """Options with their values, and operands, as GNU programs read them. `valued`: the options that have a value,
    with `?` if it can only be attached. `stops`: options end at the first operand."""
    names, rest = valued.split(), list(words)
    options, operands = dict[str, str | None](), list[str | None]()
    while rest:
        word = rest.pop(0)
        if word is None or word in ("-", "--") or not word.startswith("-"):
            operands += [word] if word != "--" else []
            if stops or word == "--":
                return options, operands + rest
            continue
        is_long = word.startswith("--")
        name, has_value, value = word.partition("=") if is_long else (word[:2], word[2:], word[2:])
        if name in names and not has_value:
            options[name] = rest.pop(0) if rest else None
        elif is_long or name in names or f"{name}?" in names:
            options[name] = value
        else:
            options[name] = ""
            rest[:0] = [f"-{value}"] if value else []
    return options, operands
