"""Names become tokens of subjects that NATS takes, and no two names the same."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdlog.adapters.nats.subjects import HASHED, LONGEST_TOKEN, matches, subject_in, token
from holdlog.domain.names import agent_stream, claim_stream, name, record_stream, thread_stream

TOKEN = re.compile(r"[A-Za-z0-9_%-]{1,240}")


def is_name(text: str) -> bool:
    try:
        return name(text) == text
    except ValueError:
        return False


NAMES = st.one_of(
    st.text(max_size=40), st.text(alphabet=" .*>%/_~-aé🦊", max_size=40), st.text(min_size=150, max_size=512)
).filter(is_name)


@given(NAMES)
def test_any_name_becomes_one_subject_token_of_plain_characters(text: str) -> None:
    assert TOKEN.fullmatch(token(text))


@pytest.mark.check
@given(NAMES, NAMES)
def test_two_names_have_two_subject_tokens(one: str, other: str) -> None:
    assume(one != other)
    assert token(one) != token(other)


def test_names_that_look_encoded_are_encoded_again() -> None:
    assert token("a.b") == "a%2Eb"
    assert token("a%2Eb") == "a%252Eb"
    assert token("~") == "%7E"
    assert token("Straße *>") == "Stra%C3%9Fe%20%2A%3E"


@pytest.mark.parametrize("text", ["x" * 512, "🦊" * 512, "a.b " * 127 + "z", "x" * LONGEST_TOKEN + "y"])
def test_long_name_is_cut_and_hashed_and_keeps_its_beginning(text: str) -> None:
    made = token(text)
    assert len(made) <= LONGEST_TOKEN
    kept, _, hashed = made.partition(HASHED)
    assert len(hashed) == 64
    assert token(text).startswith(kept)
    assert not re.search("%.?$", kept)
    assert token(text[:-1] + "!") != made


def test_name_of_maximum_length_is_not_cut() -> None:
    assert token("x" * LONGEST_TOKEN) == "x" * LONGEST_TOKEN


@pytest.mark.parametrize(
    ("stream", "subject"),
    [
        (record_stream("campaign", "budget"), "record.campaign.budget"),
        (record_stream("a.b", "c d/e"), "record.a%2Eb.c%20d%2Fe"),
        (claim_stream("src/parser.py"), "claim.path.src%2Fparser%2Epy"),
        (claim_stream("src/"), "claim.path.src%2F"),
        (claim_stream("file://tree/src/a.py"), "claim.file%3Atree.src%2Fa%2Epy"),
        (claim_stream("file://tree"), f"claim.file%3Atree.{HASHED}"),
        (claim_stream("file://tree/"), "claim.file%3Atree.%2F"),
        (claim_stream("custom://deploy"), "claim.custom.deploy"),
        (agent_stream("claude/tests"), "agent._.claude%2Ftests"),
        (thread_stream("run-7"), "thread._.run-7"),
        (thread_stream("a.b/c d>*"), "thread._.a%2Eb%2Fc%20d%3E%2A"),
    ],
)
def test_subjects_contain_kind_namespace_and_key(stream: str, subject: str) -> None:
    assert subject_in(stream) == subject


@given(NAMES, NAMES)
def test_two_threads_have_two_subjects_of_three_tokens(one: str, other: str) -> None:
    assume(one != other)
    subjects = [subject_in(thread_stream(it)) for it in (one, other)]
    assert subjects[0] != subjects[1]
    for subject in subjects:
        kind, namespace, key = subject.split(".")
        assert (kind, namespace) == ("thread", "_")
        assert TOKEN.fullmatch(key)
        assert matches("thread.>", subject)


@pytest.mark.parametrize(
    ("pattern", "subject", "fits"),
    [
        ("record.campaign.budget", "record.campaign.budget", True),
        ("record.*.budget", "record.campaign.budget", True),
        ("record.>", "record.campaign.budget", True),
        (">", "record.campaign.budget", True),
        ("*.*.*", "record.campaign.budget", True),
        ("record.campaign.budget.>", "record.campaign.budget", False),
        ("record.*", "record.campaign.budget", False),
        ("claim.>", "record.campaign.budget", False),
        ("record.campaign.budge", "record.campaign.budget", False),
    ],
)
def test_patterns_match_like_those_of_nats(pattern: str, subject: str, fits: bool) -> None:
    assert matches(pattern, subject) is fits
