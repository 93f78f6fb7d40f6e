"""Words that readers had to translate, and turns of phrase that no native speaker uses, stay out of all texts."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.test_gates import ROOT, files, pages, parsed, product

BANNED = re.compile(
    r"\b(?:told|tells|said|stands?(?! (?:for|alone|still|behind))|stood|whoever|lets? go|anew|beside|bell|wish(?:es)?"
    r"|upkeep|footprint|rooms?|happenings?|seals?|sealed|asked(?!\s+for)|as told|in turn|now and then|is none of"
    r"|(?:goes|go) with(?:out)?|of its own|(?:may|can|cannot) be had|(?:the|an|its|each|whose) answers?)\b"
    r"|(?<!there )\b(?:is|are) no (?!longer|more\b|such\b)",
    re.IGNORECASE,
)
BANNED_IN_CODE = re.compile(
    rf"{BANNED.pattern}|\b(?:go(?:es)? on|so (?:long|many|much)|(?<!\")as of (?!this)|namesakes?|in vain|made up|is due"
    r"|what is due|heir|guests?)\b",
    re.IGNORECASE,
)
"""Also banned in the texts and comments of modules."""
ALLOWED = {
    ("adapters/stores/sql.py", "told"): "a column",
    ("adapters/stores/sqlite/schema.py", "told"): "a column",
    ("adapters/stores/postgres/schema.py", "told"): "a column",
}
"""File and word, with the reason."""
VAGUE = {"found", "given", "wanted", "kept", "told", "there", "here", "about", "took", "whose"}


def list_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, hints, messages and help of a module (its string constants of several words), and its comments."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_texts_and_pages_are_free_of_words_that_readers_had_to_translate() -> None:
    texts = [(path, *text) for path in product() for text in list_texts(path)]
    texts += [(path, 1, path.read_text()) for path in [*pages(), ROOT / "README.md", *files("deploy", {".md"})]]
    banned = [
        f"{place}:{line + text.count(chr(10), 0, match.start())}: {match[0]}"
        for path, line, text in texts
        for match in (BANNED_IN_CODE if path.suffix == ".py" else BANNED).finditer(text)
        if ((place := str(path.relative_to(ROOT))), match[0]) not in ALLOWED
    ]
    assert banned == []


def test_no_variable_or_parameter_has_a_name_that_does_not_say_what_it_holds() -> None:
    vague = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
        for path in product()
        for function in ast.walk(parsed(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Name | ast.arg)
        if (name := node.arg if isinstance(node, ast.arg) else node.id) in VAGUE
    ]
    assert vague == []
