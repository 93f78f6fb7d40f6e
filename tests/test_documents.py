"""The pages are true: the examples of README.md and docs/ run, their commands parse, all links lead somewhere."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from holdlog.adapters.cli.main import main
from holdlog.adapters.cli.parser import Parser
from tests.support.programs import environment

DOCS = Path(__file__).parents[1] / "docs"
WRITTEN = sorted([DOCS.parent / "README.md", *DOCS.rglob("*.md")])
WRITTEN.remove(DOCS / "reference.md")  # tools/write_reference.py makes that one
PAGES = sorted([*DOCS.parent.glob("*.md"), *DOCS.rglob("*.md"), *DOCS.parent.glob("*/README.md")])
OPTIONAL = re.compile(r"\[[^\]]*\]")
HOOK = "holdlog hook"  # which reads its words without a parser
TESTS = re.compile(r"`((?:doors/)?test_\w+\.py)(?:::(\w+))?`")
WORDS = re.compile(r"…|\b(NS|KEY|VALUE|N|NAME|FILE|PATH|TEXT|RESOURCE|ID)\b")


def name(page: Path) -> str:
    return page.relative_to(DOCS.parent).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


EXAMPLES = [
    pytest.param(text, id=f"{name(page)}-{number}")
    for page in WRITTEN
    for number, text in enumerate(blocks(page, "python"))
]


@pytest.mark.parametrize("text", EXAMPLES)
def test_example_of_a_page_runs_and_prints_what_its_comments_state(text, tmp_path):
    if not text.startswith(("import ", "from ")):  # a part of a program
        compile(text, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == re.findall(r"print\(.*\)  # (.*)$", text, re.MULTILINE)


def list_commands(page: Path) -> list[str]:
    """The command lines of holdlog in a page, each with words for what it leaves open."""
    text = page.read_text()
    lines = [line.removeprefix("$ ") for block in blocks(page, "console") for line in block.splitlines()]
    lines += re.findall(r"^    (holdlog .*)$", text, re.MULTILINE)
    shown = [line for line in lines if line.startswith("holdlog ")] + re.findall(r"`(holdlog [^`\n]+)`", text)
    shown = [re.split(r" [|>] ", line)[0] for line in shown]
    filled = [WORDS.sub(lambda word: "codex" if word[0] == "NAME" else "1", OPTIONAL.sub("", line)) for line in shown]
    return [f"{line} --help" if line.count(" ") == 1 else line for line in filled if not line.startswith(HOOK)]


COMMANDS = sorted({command for page in WRITTEN for command in list_commands(page)})


def test_pages_show_commands_and_examples():
    assert len(COMMANDS) > 30
    assert len(EXAMPLES) > 10


class Parsed(Exception):
    """Ends a command behind its parser."""


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_a_page_is_one_that_its_parser_accepts(command, monkeypatch, tmp_path):
    parse = Parser.parse_args
    (tmp_path / "1").write_text("[]")

    def parse_and_stop(self, args=None, namespace=None):
        parse(self, args, namespace)
        raise Parsed

    monkeypatch.setattr(Parser, "parse_args", parse_and_stop)
    monkeypatch.setattr(sys, "argv", shlex.split(command, comments=True))
    monkeypatch.chdir(tmp_path)
    with pytest.raises((Parsed, SystemExit)) as ended:
        main()
    assert getattr(ended.value, "code", 0) == 0


def anchors(page: Path) -> set[str]:
    """Those that GitHub gives headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_a_page_lead_to_files_and_headings(page):
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target, anchor in re.findall(r"\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)", prose):
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


PROMISED = sorted(set(TESTS.findall((DOCS / "promises.md").read_text())))


def test_each_promise_names_tests():
    promises = re.findall(
        r"^\d+\. (.*?)(?=^\d+\. |^#|\Z)", (DOCS / "promises.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert [promise for promise in promises if not TESTS.search(promise)] == []
    assert len(promises) > 40


@pytest.mark.parametrize(("file", "test"), PROMISED)
def test_a_promise_names_a_test_that_exists(file, test):
    text = (DOCS.parent / "tests" / file).read_text()
    assert not test or re.search(rf"^(async )?def test_{test}\(", text, re.MULTILINE)


@pytest.mark.rest
def test_picture_shows_what_the_demo_prints(tmp_path):
    command = [sys.executable, "-m", "holdlog", "demo"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    rows = re.findall(r"<text .*?>(.*)</text>", (DOCS / "demo.svg").read_text())
    times = re.compile(r"\d\d:\d\d:\d\d UTC \(\d+ s\)")
    drawn = [times.sub("", re.sub("<.*?>", "", row)) for row in rows]
    printed = [times.sub("", line.strip()) for line in done.stdout.splitlines() if line]
    assert drawn == printed[: len(drawn)]
    assert len(drawn) > 20
