"""Names that protect nothing are refused for new claims, with what to use instead."""

import pytest

from holdlog.domain.claims.resource import canonical, claimable


@pytest.mark.parametrize(
    "text", ["src/*.py", "src/**", "*", "a?.py", "src/**/", "file://web/*.py", "./src/*.py", "src\\*.py", "/abs/*.py"]
)
def test_pattern_is_refused_with_the_folder_and_also_instead(text: str) -> None:
    with pytest.raises(ValueError, match=r"\* or \?") as refused:
        claimable(text)
    assert "src/" in str(refused.value)
    assert "also" in str(refused.value)
    assert "\n" not in str(refused.value)


MALFORMED = [
    r"custom:merge",
    r"custom:/x",
    r"custom:/",
    r"custom:",
    r"custom//deploy",
    r"custom///x",
    r"Custom:merge",
    r"CUSTOM//x",
    r"custom:\\x",
]


@pytest.mark.parametrize("text", [*MALFORMED, "custom: x", "./custom:merge"])
def test_malformed_custom_name_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"custom://merge$"):
        claimable(text)


FILES = [
    "app/[id]/page.tsx",
    "app/[...slug]/page.tsx",
    "custom/deploy",
    "customers:a",
    "src/custom:x",
    "src/a.py:10",
    "C#/a.cs",
]


@pytest.mark.parametrize(
    "text", [*FILES, "custom://*.py", "custom://a?", "custom://a//../b", "custom", "a, b.py", "db"]
)
def test_names_without_patterns_are_accepted(text: str) -> None:
    assert claimable(text) == canonical(text) == text
