"""All documents: their commands exist, their links lead somewhere, the site and the package index show them."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.cli.main import build_parser
from tests.support.option_tables import DOCS, TABLES, with_table

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
REPOSITORY = "https://github.com/holdlog/holdlog/blob/main/"
IMAGES = "https://raw.githubusercontent.com/holdlog/holdlog/main/"
TARGETS = frozenset(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def console(text: str) -> Iterator[list[str]]:
    """The words of each line of the console blocks."""
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            yield shlex.split(line, comments=True) if line.startswith(("holdlog", "make")) else []


@pytest.mark.parametrize(
    "document",
    [path for path in DOCUMENTS if path.name != "answers.md"],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_every_command_that_a_document_shows_exists(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser, names = build_parser()
    text = document.read_text()
    inline = [shlex.split(found) for found in re.findall(r"`(holdlog [^`\n]+)`", text)]
    for words in [*(words for words in console(text) if words[:1] == ["holdlog"]), *inline]:
        given = words[1:]
        if not names.intersection(given):
            given.insert(0, "serve")
        with pytest.raises(SystemExit) as ended:
            parser.parse_args([*given[: _command_at(given, names) + 1], "--help"])
        assert ended.value.code == 0, words
        shown = capsys.readouterr().out
        assert all(option in shown for option in given if option.startswith("--")), words


def _command_at(given: list[str], names: frozenset[str]) -> int:
    return next(index for index, word in enumerate(given) if word in names)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_make_target_that_a_document_shows_exists(document: Path) -> None:
    text = document.read_text()
    shown = [words[1] for words in console(text) if words[:1] == ["make"]] + re.findall(r"`make ([a-z]+)", text)
    assert set(shown) <= TARGETS


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_within_the_repository_leads_to_a_file_and_a_heading(document: Path) -> None:
    for target, anchor in re.findall(r"\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)", prose(document)):
        file = document.parent / target if target else document
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


@pytest.mark.parametrize("document", TABLES)
def test_table_of_options_is_that_of_the_code(document: str) -> None:
    """After a change: `python -m tests.support.option_tables`."""
    text = (DOCS / document).read_text()
    assert text.count("| `--") > 5
    assert text == with_table(document)


def test_documents_show_commands_targets_and_links() -> None:
    """The tests above have something to judge."""
    texts = [path.read_text() for path in DOCUMENTS]
    assert sum(len(re.findall(r"`holdlog [^`\n]+`", text)) for text in texts) > 50
    assert sum(len(re.findall(r"`make [a-z]+", text)) for text in texts) > 10
    assert sum(len(re.findall(r"\]\((?![a-z]+:)([^)#\s]+)", text)) for text in texts) > 100


def prose(document: Path) -> str:
    """The text of a document without its code blocks."""
    return re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub and the site give the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def pages(navigation: list[Any]) -> Iterator[str]:
    for entry in navigation:
        for page in entry.values() if isinstance(entry, dict) else [entry]:
            yield from pages(page) if isinstance(page, list) else [page]


def test_the_navigation_of_the_site_has_every_page_once() -> None:
    shown = sorted(pages(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    assert shown == sorted([*(path.name for path in ROOT.glob("docs/*.md")), "decisions/README.md"])


def test_the_index_of_the_documentation_links_every_page() -> None:
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/README.md").read_text())
    assert sorted(linked) == sorted(path.name for path in ROOT.glob("docs/*.md") if path.name != "README.md")


def test_the_index_of_decisions_links_every_decision() -> None:
    linked = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (ROOT / "docs/decisions/README.md").read_text())
    assert sorted(linked) == sorted(path.name for path in ROOT.glob("docs/decisions/0*.md"))


def test_the_long_description_on_the_package_index_has_only_absolute_links() -> None:
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"][
        "fancy-pypi-readme"
    ]
    assert hook["fragments"] == [{"path": "README.md"}]
    text = (ROOT / "README.md").read_text()
    for substitution in hook["substitutions"]:
        text = re.sub(substitution["pattern"], substitution["replacement"], text)
    images = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text)
    links = re.findall(r"(?<!!)\[[^\]]*\]\(([^)]*)\)", text)
    assert images == [f"{IMAGES}docs/demo.svg"]
    assert len(links) >= 20
    for link in links:
        assert link.startswith("https://"), link
        assert not link.startswith(REPOSITORY) or (ROOT / link.removeprefix(REPOSITORY).partition("#")[0]).is_file(), (
            link
        )
