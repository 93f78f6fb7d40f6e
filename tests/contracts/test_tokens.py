"""Tokens in every store: kept, found, carried; and their hashes told to nobody."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.nats import payload
from holdlog.adapters.nats.patterns import pattern_of
from holdlog.adapters.nats.subjects import subject_in
from holdlog.adapters.python.copying import copy
from holdlog.adapters.stores.sqlite import schema
from holdlog.domain.commands import AnyCommand
from holdlog.domain.message import Caller
from holdlog.domain.ports import Store
from holdlog.domain.refusals import InvalidError, NotFoundError
from holdlog.domain.token import IssueToken, RevokeToken, RotateToken, Token, TokenChanged
from tests.support.clock import SECOND, Clock
from tests.support.commands import (
    noted_refusals,
    require_chained,
    require_views_equal_the_log,
    rows,
    run,
    whole_log,
    write,
)
from tests.support.kinds import InDatabase, InFile, Kind
from tests.support.places import Place, Somewhere, engine, places

ONE, TWO = "1" * 64, "2" * 64


def issue(name: str = "ci", hashed: str = ONE, **more: Any) -> IssueToken:
    told: dict[str, Any] = {"allow": ("write:build-*", "read:*"), "by": "ann"} | more
    return IssueToken(name=name, hash=hashed, **told)


def rotate(name: str = "ci", hashed: str = TWO, overlap: float = 60) -> RotateToken:
    return RotateToken(name=name, hash=hashed, overlap_seconds=overlap, by="bob")


def revoke(name: str = "ci") -> RevokeToken:
    return RevokeToken(name=name, by="bob")


def changed(store: Store, command: AnyCommand) -> TokenChanged:
    outcome = run(store, command, Caller(principal="token:boss", session="s1"))
    assert isinstance(outcome, TokenChanged)
    return outcome


def found(store: Store, name: str = "ci") -> Token:
    with store.reader() as reader:
        return reader.token(name)


def stands(store: Store, outcome: TokenChanged) -> bool:
    """Whether the outcome is what is read; it does not tell the digest."""
    return outcome.token == found(store)


def test_a_token_reads_as_it_was_issued_rotated_and_revoked(store: Store, clock: Clock) -> None:
    assert found(store) == Token("ci")
    at = clock.now
    issued = changed(store, issue(lifetime_seconds=3600, space="team"))
    assert stands(store, issued)
    assert not issued.already
    assert issued.position == 1
    assert found(store)[:10] == (
        "ci", 1, ONE, None, None, ("write:build-*", "read:*"), at + 3600 * SECOND, "team", "ann", at,
    )  # fmt: skip
    clock.pass_by(10)
    assert stands(store, changed(store, rotate()))
    assert list(found(store).hashes(clock.now)) == [TWO, ONE]
    assert (found(store).rotated_at, found(store).previous_until) == (clock.now, clock.now + 60 * SECOND)
    changed(store, revoke())
    assert found(store).revoked_at == clock.now
    assert not found(store).is_known
    again = changed(store, revoke())
    assert (again.already, again.position, again.token) == (True, 3, found(store))
    changed(store, issue(hashed="3" * 64))
    assert (found(store).version, found(store).revoked_at, found(store).previous_hash) == (4, None, None)
    require_chained(store)
    require_views_equal_the_log(store)


def test_tokens_are_listed_by_name_in_pages(store: Store) -> None:
    for name in ("b", "a-1", "c", "a"):
        changed(store, issue(name))
    changed(store, revoke("c"))
    with store.reader() as reader:
        assert [it.name for it in reader.tokens(None, -1)] == ["a", "a-1", "b", "c"]
        assert [it.name for it in reader.tokens("a", 2)] == ["a-1", "b"]
        assert reader.tokens("c", 5) == []


def test_a_refused_command_about_tokens_changes_nothing(store: Store) -> None:
    changed(store, issue())
    with pytest.raises(InvalidError):
        changed(store, issue(hashed=TWO))
    with pytest.raises(NotFoundError):
        changed(store, revoke("other"))
    assert len(whole_log(store)) == 1
    assert found(store).hash == ONE


def test_issuing_twice_in_one_transaction_sees_the_first(store: Store) -> None:
    from holdlog.adapters.runtime.command_handler import handle

    with store.transaction(time.monotonic() + 30) as transaction:
        handle(issue(), Caller(), transaction)
        with pytest.raises(InvalidError):
            handle(issue(hashed=TWO), Caller(), transaction)
        handle(rotate(), Caller(), transaction)
    assert found(store).hash == TWO


# --- carried along


@pytest.fixture
def somewhere(tmp_path: Path, postgres_server: str) -> Iterator[Somewhere]:
    with places(tmp_path, postgres_server) as found:
        yield found


@pytest.fixture(params=["file", "schema"])
def kind(request: pytest.FixtureRequest, somewhere: Somewhere) -> Kind:
    """A store with a token, not open."""
    place = somewhere(request.param)
    filled(place)
    return InFile(place) if isinstance(place, Path) else InDatabase(place)


def filled(place: Place) -> None:
    with engine(place) as store:
        changed(store, issue(space="team"))
        changed(store, rotate())
        changed(store, issue("gone"))
        changed(store, revoke("gone"))


@pytest.mark.parametrize("target", ["file", "schema"])
def test_copy_accepts_the_tokens_of_its_source(kind: Kind, target: str, somewhere: Somewhere) -> None:
    there = somewhere(target)
    copy(kind.place, there)
    with engine(Path(kind.place) if isinstance(kind, InFile) else str(kind.place)) as ours, engine(there) as theirs:
        assert rows(theirs)[:-1] == rows(ours)
        with ours.reader() as one, theirs.reader() as other:
            assert one.tokens(None, -1) == other.tokens(None, -1) != []
        require_views_equal_the_log(theirs)


def test_rebuild_restores_tokens_exactly(kind: Kind) -> None:
    before = kind.views()
    kind.doctored("DELETE FROM tokens")
    assert kind.bad().keys() == {"views"}
    assert kind.rebuilt().rows["tokens"] == 2
    assert kind.views() == before
    assert kind.unsound() == []


def test_doctor_shows_no_hash_of_a_damaged_token(kind: Kind) -> None:
    kind.doctored(f"UPDATE tokens SET previous_hash = '{'7' * 64}' WHERE name = 'ci'")
    told = repr(kind.look())
    assert "views" in kind.bad()
    assert "token:ci" in told
    assert not any(digit * 20 in told for digit in "127")


def test_write_keeps_the_newer_minor_version_of_a_store(kind: Kind) -> None:
    place = Path(kind.place) if isinstance(kind, InFile) else str(kind.place)
    if isinstance(kind, InFile):
        kind.run(f"PRAGMA user_version = {schema.MAJOR * schema.MINORS_PER_MAJOR + 7}")
    else:
        kind.run("UPDATE meta SET value = '7' WHERE name = 'minor'")
    with engine(place) as store:
        write(store, "k", 1)
    number = "PRAGMA user_version" if isinstance(kind, InFile) else "SELECT value FROM meta WHERE name = 'minor'"
    assert str(kind.ask(number)[0][0])[-1] == "7"
    with pytest.raises(Exception, match=r"rebuild with the newest holdlog"):
        kind.rebuilt()


# --- told to nobody


def test_published_token_events_contain_no_hash(store: Store) -> None:
    for command in (issue(), rotate(), revoke()):
        changed(store, command)
    told = [json.loads(payload.text_of("4b0c3a5e-0000-4000-8000-000000000001", it)) for it in whole_log(store)]
    assert [it["data"].keys() for it in told] == [
        {"token", "allow", "by"},
        {"token", "overlap_until", "by"},
        {"token", "by"},
    ]
    assert ONE not in repr(told)
    assert TWO not in repr(told)
    assert told[1]["data"]["overlap_until"].endswith("Z")


def test_token_events_have_a_subject_that_a_pattern_can_match() -> None:
    assert subject_in("token:ci") == "token._.ci"
    assert pattern_of("token.>", "holdlog").fits("token._.ci")
    with pytest.raises(InvalidError, match="the namespace of tokens is _"):
        pattern_of("token.ci.x", "holdlog")


def test_recorded_refusals_contain_no_token_hash(store: Store) -> None:
    from holdlog.adapters.operating_system.notifications import ProcessNotifier
    from holdlog.adapters.runtime.group_commit import Writer

    writer = Writer(store, ProcessNotifier())
    writer.run(issue(), Caller())
    with pytest.raises(InvalidError):
        writer.run(issue(hashed=TWO), Caller())
    writer.run(rotate(hashed="3" * 64), Caller())
    writer.close()
    (noted,) = noted_refusals(store)
    assert noted.code == "invalid"
    assert not any(it * 20 in repr(noted) for it in "123")
