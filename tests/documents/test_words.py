"""Names, texts and documents use the vocabulary of docs/glossary.md, not the words of earlier versions.

To use a banned word for good reason, add it to an allow list here, with the reason.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for folder in ("domain", "projections", "adapters") for path in (ROOT / folder).rglob("*.py"))
PAGES = sorted(
    path for pattern in ("*.md", "docs/*.md", "examples/**/*.md", ".github/**/*.md") for path in ROOT.glob(pattern)
)

WORDS_OF_NAMES = re.compile(
    "ahead|anew|until_async|asked|asker|asks|bells?|beside|ear|follower|footprint|gates?|guesses|happened|hear|heard|hears|"
    "journey|leaving|let|looks?|looked|mend|mended|mends|mouth|neighbours?|places?|rings?|rivals?|said|says?|served|"
    "settles?|settled|settling|stands?|standing|stood|swept|tells?|telling|told|upkeep|whoever|wish|wishes"
)
ALLOWED_NAMES = {
    "tell": "a parameter of the public `copy` and `Subscription`",
}

PHRASES = {
    r"\banew\b": "again",
    r"\bas told\b": "as specified",
    r"\bbells?\b": "notification",
    r"\bbeside\b": "next to",
    r"\bcannot be had\b": "is not available",
    r"\bmay be had\b": "is available",
    r"\bfooting\b": "basis",
    r"\bgates?\b": "write lock",
    r"\bgo(es)? with\b": "accompanies",
    r"\bin line\b": "in the queue",
    r"\bin turn\b": "one after the other",
    r"\bis none of\b": "is not",
    r"(?<!there )(?<!it )\bis no\b(?! longer)": "is not",
    r"\blets? go\b": "release",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bnow and then\b": "occasionally",
    r"\bof (its|their) own\b": "separate",
    r"\bstands?\b(?! for)": "is",
    r"\bstood\b": "was",
    r"\bstanding\b": "current",
    r"\bswept\b": "expired",
    r"\btold\b": "returned, reported",
    r"\bwhat stands\b": "the current value",
    r"\bwhoever\b": "the caller that",
}
STORED_NAMES = re.compile(
    r"\.(gate|bells)\b|\d{4}-(gate|bells)\.md|holdlog bell|\"told\"|`told`|\btold (INTEGER|= 0|OR)"
)
"""Names of columns and of files next to the store, the content of a notification, and decision records: they do not
change."""


def has_banned_word(name: str) -> bool:
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return any(WORDS_OF_NAMES.fullmatch(word.lower()) for word in words)


def names(tree: ast.AST) -> Iterator[str]:
    """Names that the code defines: of classes, functions, parameters, variables, attributes and aliases."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.alias(asname=str() as name) | ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
                yield name


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Comments and strings, docstrings included, with their line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            yield token.start[0], token.string


def banned(text: str) -> list[str]:
    return [
        f"{found[0]!r}: write {better!r}"
        for phrase, better in PHRASES.items()
        for found in re.finditer(phrase, STORED_NAMES.sub("", text), re.IGNORECASE)
    ]


def test_the_lint_finds_a_banned_name_and_a_banned_phrase() -> None:
    tree = ast.parse("def tell(what): wish = bell_of(what)\nclass NatsBeside: ...")
    assert [name for name in names(tree) if has_banned_word(name)] == ["tell", "NatsBeside", "wish"]
    assert banned("The caller is told what stands there.") != []
    assert banned("The response lists the lost claims.") == []


def test_names_use_the_vocabulary() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for name in [path.stem, *names(ast.parse(path.read_text()))]
        if has_banned_word(name) and name not in ALLOWED_NAMES
    ]
    assert len(SOURCES) > 250
    assert found == []


@pytest.mark.check
def test_texts_of_the_code_use_the_vocabulary() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {it}"
        for path in SOURCES
        for line, text in texts(path.read_text())
        for it in banned(text)
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_use_the_vocabulary(page: Path) -> None:
    found = [
        f"{page.name}:{number}: {it}"
        for number, line in enumerate(page.read_text().splitlines(), 1)
        for it in banned(line)
    ]
    assert found == []
