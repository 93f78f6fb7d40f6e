"""Patterns of subjects: what some event can have is taken, what none can have is refused in one line."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdlog import subscribe
from holdlog.adapters.cli.main import main
from holdlog.adapters.nats.options import NatsOptions
from holdlog.adapters.nats.patterns import Pattern, pattern_of
from holdlog.adapters.nats.subjects import subject_in
from holdlog.adapters.python.subscriber import Subscription
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.names import agent_stream, claim_stream, record_stream, thread_stream
from holdlog.domain.refusals import InvalidError
from tests.surfaces.nats.conftest import publish_all
from tests.surfaces.nats.test_subjects import NAMES
from tests.surfaces.nats.test_subscriber import some, write

NOWHERE = "nats://127.0.0.1:1"
REFUSED = [
    ("campaign.>", "it must start with record, claim, agent"),
    ("", "it contains an empty name"),
    (".", "it contains an empty name"),
    ("a..b", "it contains an empty name"),
    ("record..b", "it contains an empty name"),
    (".record.a.b", "it contains an empty name"),
    ("record.a.b.", "it contains an empty name"),
    (" ", "it must start with"),
    (" claim.>", "it must start with"),
    ("claim.> ", "* and > replace whole names"),
    ("Record.a.b", "it must start with"),
    ("record.>.b", "> is only allowed at the end"),
    (">.>", "> is only allowed at the end"),
    ("record.a.b*", "* and > replace whole names"),
    ("claim.path.src/a.py", "as in claim.path.src%2Fa%2Epy"),
    ("claim.path.src%2Fa.py", "as in claim.path.src%2Fa%2Epy"),
    ("claim.file://tree/src/a.py", "as in claim.file%3Atree.src%2Fa%2Epy"),
    ("claim.custom://deploy", "as in claim.custom.deploy"),
    ("record.my campaign.budget", "as in record.my%20campaign.budget"),
    ("record.*.été", "as in record.*.%C3%A9t%C3%A9"),
    ("record.a.%41", "as in record.a.A"),
    ("record.a.%4", "as in record.a.%254"),
    ("record.a.\udc80", "percent-encoded"),
    ("record.a.\n", "percent-encoded"),
    ("record.a." + "x" * 161, "percent-encoded"),
    ("record.campaign.a.b", "as in record.campaign.a%2Eb"),
    ("record", "kind, namespace and key"),
    ("*", "kind, namespace and key"),
    ("record.campaign", "kind, namespace and key"),
    ("record.a.b.>", "kind, namespace and key"),
    ("claim.src.>", "namespace of claims is path, custom or file%3A"),
    ("agent.ann", "kind, namespace and key"),
    ("agent.all.ann", "as in agent._.ann"),
    ("thread.run-7", "kind, namespace and key"),
    ("thread.all.run-7", "as in thread._.run-7"),
    ("thread._.run 7", "as in thread._.run%207"),
    ("thread._.a.b", "as in thread._.a%2Eb"),
    ("holdlog.team.campaign.>", "it must start with"),
    ("holdlog.team", "it contains an empty name"),
    ("holdlog..claim.>", "the name of the store"),
    ("holdlog.te am.claim.>", "the name of the store"),
    ("another.team.claim.>", "it must start with"),
]


@pytest.mark.check
@pytest.mark.parametrize(("pattern", "says"), REFUSED)
def test_pattern_that_no_event_can_match_is_refused_in_one_line(
    pattern: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidError, match=re.escape(says)) as refusal:
        subscribe(NOWHERE, subject=pattern)
    assert "\n" not in str(refusal.value)
    db = str(tmp_path / "state.db")
    assert main(["set", "n", "k", "1", "--force", "--db", db]) == 0
    capsys.readouterr()
    assert main(["subscribe", "--nats", NOWHERE, "--db", db, "--subject", "claim.>", f"--subject={pattern}"]) == 2
    out, said = capsys.readouterr()
    assert (out, said.count("\n")) == ("", 1)
    assert says in said


TAKEN = [
    (">", Pattern("*", ">")),
    ("*.>", Pattern("*", "*.>")),
    ("*.*.*", Pattern("*", "*.*.*")),
    ("record.>", Pattern("*", "record.>")),
    ("record.campaign.>", Pattern("*", "record.campaign.>")),
    ("claim.file%3Atree.>", Pattern("*", "claim.file%3Atree.>")),
    ("agent._.*", Pattern("*", "agent._.*")),
    ("thread.>", Pattern("*", "thread.>")),
    ("thread._.run-7", Pattern("*", "thread._.run-7")),
    ("holdlog.team.thread.*.run-7", Pattern("team", "thread.*.run-7")),
    ("holdlog.>", Pattern("*", ">")),
    ("holdlog.*.claim.>", Pattern("*", "claim.>")),
    ("holdlog.team.>", Pattern("team", ">")),
    ("holdlog.team.claim.path.src%2Fa%2Epy", Pattern("team", "claim.path.src%2Fa%2Epy")),
]


@pytest.mark.parametrize(("text", "pattern"), TAKEN)
def test_subject_pattern_may_name_its_store_or_not(text: str, pattern: Pattern) -> None:
    assert pattern_of(text, "holdlog") == pattern


def test_subject_prefix_may_have_dots_and_equal_a_kind() -> None:
    assert pattern_of("a.b.team.claim.>", "a.b") == Pattern("team", "claim.>")
    assert pattern_of("record.team.claim.>", "record") == Pattern("team", "claim.>")
    assert pattern_of("record.campaign.*", "record") == Pattern("*", "record.campaign.*")


@given(NAMES, NAMES, st.booleans())
def test_every_subject_of_an_event_can_be_matched(one: str, other: str, named: bool) -> None:
    streams = [record_stream(one, other), agent_stream(one), thread_stream(one), claim_stream(f"custom://{one}")]
    for subject in (*map(subject_in, streams), subject_in(claim_stream("file://tree"))):
        pattern = pattern_of(f"holdlog.team.{subject}" if named else subject, "holdlog")
        assert pattern.fits(subject)


async def test_the_subject_of_another_store_is_refused(engine: Engine, path: Path, options: NatsOptions) -> None:
    options = replace(options, name="one")
    write(engine, 1)
    await publish_all(engine, path, options)
    async with Subscription(options, ["holdlog.one.>", "holdlog.*.record.>"], after=0) as events:
        assert [event.position for event in await some(events, 1)] == [1]
    async with Subscription(options, ["holdlog.other.>"], after=0) as events:
        with pytest.raises(InvalidError, match="the store other; this store publishes as one"):
            await some(events, 1)


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5"])
def test_limit_of_a_subscription_is_at_least_one(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["subscribe", "--nats", NOWHERE, f"--limit={limit}"])
    said = capsys.readouterr().err
    assert "--limit: must be a whole number, 1 or more" in said
    assert said.count("\n") == 1
