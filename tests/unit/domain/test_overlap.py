"""Which resources have something in common. Judged by segment, not by letters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdlog.domain.claims.resource import canonical, covering, overlap

LONG = "/".join(["x" * 63] * 8) + "/"
"""512 characters."""

TOGETHER = [
    ("src/a.py", "src/a.py"),
    ("src/", "src/"),
    ("src/", "src/a.py"),
    ("src/", "src/deep/er/a.py"),
    ("src/", "src/deep/"),
    ("src/", "src"),  # the folder itself
    ("src/deep/", "src/"),
    ("file://web/src/", "file://web/src/a.py"),
    ("file://web/src/", "file://web/src"),
    ("file://web/", "file://web/src/a.py"),
    ("custom://deploy", "custom://deploy"),
    ("custom://deploy/", "custom://deploy/eu/west"),
    ("custom://a//", "custom://a//b"),
    ("custom://a//", "custom://a//"),
    ("é/", "é/ü"),
    ("a b/", "a b/c"),
    (LONG, LONG[:-1]),
    (LONG[:64], LONG),
]
APART = [
    ("src/", "src-app"),
    ("src/", "src-app/"),
    ("src/", "src-app/a.py"),
    ("src/", "src.py"),
    ("src", "src/a.py"),  # a file is no subtree
    ("src", "src-app"),
    ("src/a", "src/a.py"),
    ("src/a/", "src/b/"),
    ("src/", "lib/src/"),
    ("src/", "/src/"),
    ("src/", "file://web/src/a.py"),
    ("file://web/src/", "file://api/src/a.py"),
    ("file://web/", "file://web2/src"),
    ("file://web/", "custom://web/"),
    ("custom://deploy", "custom://deploy/eu"),
    ("custom://deploy/", "custom://deploy-eu"),
    ("deploy/", "custom://deploy/eu"),
    ("SRC/", "src/a.py"),
    (LONG, LONG[:-2] + "y"),
]


@pytest.mark.parametrize(("one", "other"), TOGETHER)
def test_overlapping_resources_overlap_in_either_order(one: str, other: str) -> None:
    assert overlap(one, other)
    assert overlap(other, one)


@pytest.mark.parametrize(("one", "other"), APART)
def test_disjoint_resources_do_not_overlap(one: str, other: str) -> None:
    assert not overlap(one, other)
    assert not overlap(other, one)


def test_covering_resources_are_listed_from_the_root_on() -> None:
    assert covering("a.py") == ("a.py", "a.py/")
    assert covering("src/deep/a.py") == ("src/", "src/deep/", "src/deep/a.py", "src/deep/a.py/")
    assert covering("src/deep/") == ("src/", "src/deep", "src/deep/")
    assert covering("/etc/hosts") == ("/etc/", "/etc/hosts", "/etc/hosts/")
    assert covering("file://web/src/a.py") == (
        "file://web/",
        "file://web/src/",
        "file://web/src/a.py",
        "file://web/src/a.py/",
    )
    assert covering("custom://deploy/eu") == ("custom://deploy/", "custom://deploy/eu", "custom://deploy/eu/")


def test_names_of_512_characters_are_covered_at_every_depth() -> None:
    name = "/".join(["x"] * 256)
    assert len(covering(name)) == 255 + 2
    assert len(set(covering(name))) == 257
    assert all(overlap(name, above) for above in covering(name))


@pytest.mark.parametrize("half", ["custom:/", "file:/", "custom:/x", "file:/etc/hosts", "file:\\\\web", "./custom:/"])
def test_partial_scheme_is_refused_because_it_covers_every_name_of_it(half: str) -> None:
    with pytest.raises(ValueError, match="custom://<name>"):
        canonical(half)


segments = st.sampled_from(["a", "b", "a-b", "é", "a.b", " a", "custom:", "x" * 60])
paths = st.builds(
    lambda scheme, parts, slash: scheme + "/".join(parts) + slash,
    st.sampled_from(["", "/", "file://web/", "custom://", "custom://a//"]),
    st.lists(segments, min_size=1, max_size=5),
    st.sampled_from(["", "/", "//", "///"]),
)


@given(paths, paths)
def test_covering_names_are_the_overlapping_ones_that_are_not_below(one: str, other: str) -> None:
    """Stores look claims up by these names: none may be missing, and none too many."""
    try:
        one, other = canonical(one), canonical(other)
    except ValueError:
        return
    below = one.endswith("/") and other.startswith(one) and other != one
    assert overlap(one, other) == (other in covering(one) or below)
