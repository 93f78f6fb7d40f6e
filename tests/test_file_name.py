"""The names under which files are claimed: for whatever a file system allows, one name that a claim may have."""

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdlog.adapters.operating_system.file_names import encode_path
from holdlog.domain.claims.resource import check_claimable, overlap
from holdlog.domain.names import MAX_NAME

LONG = "/".join(["p" * 100] * 5)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("docs/\u26a0\ufe0f notes.md", "docs/\u26a0%ef%b8%8f notes.md"),
        ("Screenshot 9.41.00\u202fAM.png", "Screenshot 9.41.00%e2%80%afAM.png"),
        ("\u0645\u06cc\u200c\u062e.md", "\u0645\u06cc%e2%80%8c\u062e.md"),
        ("1\ufe0f\u20e3.md", "1%ef%b8%8f%e2%83%a3.md"),
        ("tab\there.py", "tab%09here.py"),
        ("new\nline/a.py", "new%0aline/a.py"),
        ("caf\udce9.py", "caf%e9.py"),
        ("back\\slash.py", "back%5cslash.py"),
        ("what?.md", "what%3f.md"),
        ("a*.py", "a%2a.py"),
        (" blank ", "%20blank%20"),
        (" docs/ a /", "%20docs/ a /"),
        ("\u202e100%.txt", "%e2%80%ae100%25.txt"),
        ("C:/x.py", "C%3a/x.py"),
        ("custom:x", "custom%3ax"),
        ("file:/x", "file%3a/x"),
    ],
    ids=ascii,
)
def test_file_that_cannot_be_claimed_as_it_is_called_has_an_encoded_name(path: str, name: str) -> None:
    assert encode_path(path) == name


@pytest.mark.parametrize(
    "path",
    [
        *("src/a.py", "src/", "a%20b.md", "100%", "%", "%zz", "%41", "my file.py", "app/[id]/page.tsx", "-x", "x/C:/y"),
        *("資料（最終）.docx", "日本/ノート.md", "paral·lel.md", "\U0001f600.md", "p/ a.py", f"{LONG}.py"),
    ],
    ids=ascii,
)
def test_file_that_can_be_claimed_keeps_its_name(path: str) -> None:
    assert encode_path(path) == path == check_claimable(path)


@pytest.mark.parametrize("path", ["\u202f", "a\tb", "%e2%80%af", "%25e2%2580%25af", "x" * 300, "a\\b", " a"], ids=ascii)
def test_file_that_is_called_like_an_encoded_name_has_another_name(path: str) -> None:
    taken = [encode_path(path)]
    for _ in range(3):
        taken.append(encode_path(taken[-1]))
    assert len(set(taken)) == len(taken)


def test_long_path_ends_with_a_digest_below_the_folders_that_have_room() -> None:
    one, other = encode_path(f"{LONG}/{'f' * 60}.py"), encode_path(f"{LONG}/{'f' * 60}.md")
    assert one != other
    assert len(one) <= MAX_NAME
    assert one.startswith("/".join(["p" * 100] * 4) + "/%~")
    assert encode_path(f"{LONG}/deep/") == "/".join(["p" * 100] * 4) + "/"
    assert overlap(encode_path(f"{LONG}/deep/"), encode_path(f"{LONG}/deep/{'x' * 200}"))


def test_path_whose_workspace_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 512"):
        encode_path("a.py", length=2)


pieces = st.sampled_from([*"ab %~*?\\:·", "%20", "%e2%80%af", "%25", "\u202f", "\ufe0f", "\u200d", "\u0323", "\u0301"])
odd = st.sampled_from(["\n", "\x00", "\udcff", "é", "अ", "٣", "\u202e", "custom:", "C:", "file:", "\u3164", "x" * 99])
segments = st.lists(pieces | odd, min_size=1, max_size=8).map("".join).filter(lambda it: it not in (".", ".."))
paths = st.lists(segments, min_size=1, max_size=6).map(lambda it: unicodedata.normalize("NFC", "/".join(it)))


@settings(max_examples=150, deadline=None)
@given(path=paths)
@example("\u202f\u0323")
@example("\u200d\u0301")
@example("x" * 99 + "\u202f" * 30)
def test_encoded_name_can_be_claimed_and_stays_the_same(path: str) -> None:
    for start in ("", "file://wt/"):
        name = start + encode_path(path, MAX_NAME - len(start))
        assert check_claimable(name) == name
        assert unicodedata.is_normalized("NFC", name)
        assert check_claimable(name.casefold()) == name.casefold()


@settings(max_examples=150, deadline=None)
@given(one=paths, other=paths)
def test_two_files_have_two_names(one: str, other: str) -> None:
    other = other if one != other else f"{one}%"
    assert encode_path(one) != encode_path(other)
    assert encode_path(encode_path(one)) != encode_path(one) or encode_path(one) == one


@settings(max_examples=150, deadline=None)
@given(folder=paths, path=paths)
@example("x" * 99 + "/" + "y" * 99, ("z" * 99 + "/") * 4)
@example(("x" * 95 + "/") * 5, "a" * 99)
def test_folder_covers_each_file_below_it(folder: str, path: str) -> None:
    claimed = encode_path(f"{folder.rstrip('/')}/")
    assert overlap(claimed, encode_path(f"{folder.rstrip('/')}/{path.rstrip('/')}"))
