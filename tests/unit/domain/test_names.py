"""The rules for names."""

import unicodedata
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdlog.domain.names import (
    MAX_AGENT,
    MAX_NAME,
    MAX_NOTE,
    agent_name,
    claim_stream,
    label,
    name,
    note,
    record_stream,
)


@pytest.mark.parametrize(
    "text", ["a", "a b", "src/main.py", "100%", "a_b", "é", "名前", "👩‍👧", "\U0010ffff", "'; --", "_"]
)
def test_a_visible_name_is_kept_as_it_is(text: str) -> None:
    assert name(text) == text


def test_two_spellings_of_one_character_are_one_name() -> None:
    assert name("cafe\u0301") == name("caf\u00e9") == "caf\u00e9"


@pytest.mark.parametrize("text", ["", " ", "\u3000", "\u00a0\u2003"])
def test_a_blank_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="blank"):
        name(text)


@pytest.mark.parametrize("text", [" a", "a ", "\u00a0a", "a\u3000"])
def test_a_name_with_a_blank_at_its_edge_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="start or end with a blank"):
        name(text)


@pytest.mark.parametrize("text", ["a\0b", "a\nb", "a\tb", "a\x1b[31m", "a\x7fb", "a\x85b", "a\u2028b", "a\u2029b"])
def test_control_characters_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="control"):
        name(text)


@pytest.mark.parametrize("character", "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
def test_characters_that_turn_the_reading_direction_are_refused(character: str) -> None:
    with pytest.raises(ValueError, match="direction"):
        name(f"a{character}b")


@pytest.mark.parametrize(
    "character", ["\u00ad", "\u200b", "\u2060", "\u2064", "\ufeff", "\ufff9", "\U000e0001", "\U000e0067", "\U000e007f"]
)
def test_characters_of_unicode_category_format_are_refused(character: str) -> None:
    for text in (character, f"a{character}b", f"{character}a", f"a{character}"):
        with pytest.raises(ValueError, match="invisible"):
            name(text)


@pytest.mark.parametrize("joiner", ["\u200c", "\u200d"])
def test_joiners_are_allowed_inside_a_name_only(joiner: str) -> None:
    assert name(f"\u0645\u06cc{joiner}\u062e") == f"\u0645\u06cc{joiner}\u062e"
    for text in (f"{joiner}a", f"a{joiner}"):
        with pytest.raises(ValueError, match="joiner"):
            name(text)


@pytest.mark.parametrize(
    "text",
    [
        "\u200c",
        "\u200d\u200c",
        "\ufe0f",
        "\u034f",
        "\u3164",
        "\u115f\u1160",
        "\uffa0",
        "\u2800",
        "\U000e0100",
        "\u3164 \u3164",
    ],
)
def test_name_contains_something_visible(text: str) -> None:
    with pytest.raises(ValueError, match="visible"):
        name(text)


@pytest.mark.parametrize("text", ["❤\ufe0f", "1\ufe0f\u20e3", "\U0001f1e9\U0001f1ea", "क\u094d\u200dष", "\u0301"])
def test_combining_marks_on_a_visible_character_are_kept(text: str) -> None:
    assert name(text) == text


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "é\ud83d"])
def test_a_lone_surrogate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="lone surrogate"):
        name(text)


@pytest.mark.parametrize(
    ("rule", "limit"), [(name, MAX_NAME), (agent_name, MAX_AGENT), (label, MAX_AGENT), (note, MAX_NOTE)]
)
def test_longest_name_is_as_long_as_the_contract_allows(rule: type[str], limit: int) -> None:
    assert rule("x" * limit) == "x" * limit
    assert rule("é" * limit) == "é" * limit
    for character in ("x", "é"):
        with pytest.raises(ValueError, match=f"at most {limit} characters"):
            rule(character * (limit + 1))


def test_limits_of_names_are_those_of_the_contract() -> None:
    assert (MAX_NAME, MAX_AGENT, MAX_NOTE) == (512, 128, 500)


def test_length_of_a_name_counts_after_composing() -> None:
    assert name("e\u0301" * MAX_NAME) == "é" * MAX_NAME
    with pytest.raises(ValueError, match="at most"):
        name("\u0958" * MAX_NAME)  # composing excludes it: NFC makes two characters of one


def test_a_name_of_fifty_million_characters_is_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        name("é" * 50_000_000)


@given(st.text())
def test_valid_name_is_already_normalised_and_visible(text: str) -> None:
    try:
        accepted = name(text)
    except ValueError:
        return
    assert name(accepted) == accepted
    assert unicodedata.is_normalized("NFC", accepted)
    assert accepted.strip() == accepted != ""


names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)


@given(names, names)
def test_stream_of_a_record_identifies_it(namespace: str, key: str) -> None:
    kind, _, rest = record_stream(namespace, key).partition(":")
    parts = rest.split("/")
    assert (kind, [unquote(part) for part in parts]) == ("record", [namespace, key])


@given(names)
def test_stream_of_a_claim_identifies_it(resource: str) -> None:
    kind, _, rest = claim_stream(resource).partition(":")
    assert (kind, unquote(rest)) == ("claim", resource)


def test_stream_names_are_readable() -> None:
    assert record_stream("a/b", "c d") == "record:a%2Fb/c%20d"
    assert claim_stream("src/a b.py") == "claim:src/a%20b.py"


@pytest.mark.parametrize("text", ["/", "//", "/claude", "claude/", "claude//tests"])
def test_agent_needs_a_name_on_both_sides_of_a_slash(text: str) -> None:
    with pytest.raises(ValueError, match="both sides"):
        agent_name(text)
    assert agent_name("claude/tests/1") == "claude/tests/1"
    assert label(text) == text  # a session is no agent
