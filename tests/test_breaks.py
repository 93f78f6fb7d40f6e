"""The list of breaks fits the code, and docs/faults.md has it. The breaks themselves are tried by `make breaks`."""

import re
from pathlib import Path

import pytest

from tests.breaks import BREAKS, ROOT, format_table

PAGE = (ROOT / "docs/faults.md").read_text()


def has_test(name: str) -> bool:
    """Whether a test exists, named by its file below tests/ and its function, perhaps with parameters."""
    file, _, function = name.partition("::")
    text = Path(ROOT, "tests", file).read_text()
    return re.search(rf"^(async )?def {re.escape(function.partition('[')[0])}\(", text, re.MULTILINE) is not None


@pytest.mark.parametrize("it", BREAKS, ids=lambda it: it.name)
def test_text_of_a_break_is_in_its_file_once_and_its_test_exists(it):
    assert (ROOT / it.file).read_text().count(it.text) == 1
    assert it.broken not in (it.text, "")
    assert has_test(it.test)


def test_thirty_breaks_have_names_and_places_of_their_own():
    assert len(BREAKS) == len({it.name for it in BREAKS}) == len({(it.file, it.text) for it in BREAKS}) == 30


def test_page_has_the_table_of_the_breaks():
    assert "\n".join(format_table()) in PAGE


def test_tests_of_the_page_exist():
    names = re.findall(r"`((?:doors/)?test_\w+\.py)::(\w+)`", PAGE)
    assert len(names) > 45
    assert [name for file, name in names if not has_test(f"{file}::test_{name}")] == []
