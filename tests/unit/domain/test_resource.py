"""One spelling for each resource."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdlog.domain.claims.resource import canonical


@pytest.mark.parametrize(
    ("given_as", "becomes"),
    [
        ("src/main.py", "src/main.py"),
        ("./src/main.py", "src/main.py"),
        ("src\\main.py", "src/main.py"),
        (".\\src\\.\\main.py", "src/main.py"),
        ("src//main.py", "src/main.py"),
        ("src/./main.py", "src/main.py"),
        ("src/", "src/"),
        ("src\\", "src/"),
        ("src//", "src/"),
        ("/home/ann/a.py", "/home/ann/a.py"),
        ("//home/ann", "/home/ann"),
        ("...", "..."),
        ("a..b", "a..b"),
        (".env", ".env"),
        ("my file.py", "my file.py"),
        ("cafe\u0301.md", "caf\u00e9.md"),
        ("file://web/./src//a.py", "file://web/src/a.py"),
        ("file://web/src/", "file://web/src/"),
        ("custom://deploy", "custom://deploy"),
        ("custom://a//../b", "custom://a//../b"),
        ("intro.md", "intro.md"),
    ],
)
def test_one_resource_has_one_spelling(given_as: str, becomes: str) -> None:
    assert canonical(given_as) == becomes


@pytest.mark.parametrize("text", ["..", "../a", "a/../b", "a\\..\\b", "a/..", "file://web/../b", "./.."])
def test_climbing_paths_are_refused_with_what_to_do_instead(text: str) -> None:
    with pytest.raises(ValueError, match=r"custom://"):
        canonical(text)


@pytest.mark.parametrize("text", ["http://x", "ftp://a/b", "Custom://x", "git+ssh://x", "://x"])
def test_other_schemes_of_resources_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"custom://<name>"):
        canonical(text)


@pytest.mark.parametrize("text", [".", "./", "/", "//", "\\", "file://", "file://.", "custom://"])
def test_invalid_resource_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must"):
        canonical(text)


@pytest.mark.parametrize(
    "text", ["", " ", " a", "a ", "a\0b", "a\nb", "a\u202eb", "\ud800", "x" * 513, "custom:// x", "./ a"]
)
def test_valid_resource_is_a_valid_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"must"):
        canonical(text)


pieces = st.sampled_from(["a", "b.py", ".", "..", "/", "\\", " ", "é", "e\u0301", "file://", "custom://", ":", "x y"])


@given(st.lists(pieces, min_size=1, max_size=8).map("".join))
def test_canonical_resource_name_is_stable(text: str) -> None:
    try:
        once = canonical(text)
    except ValueError:
        return
    assert canonical(once) == once
