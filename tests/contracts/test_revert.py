"""Undo of what a run wrote: in every store, one transaction restores what was before; what others did stays."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdlog import InvalidError, NotFoundError, StateStore
from holdlog.adapters.api.changes.responses import RevertResult
from holdlog.adapters.auth.grants import Grants
from holdlog.adapters.compose import MEMORY
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import Caller
from holdlog.domain.refusals import DeniedError
from tests.support.commands import require_chained
from tests.support.kinds import InDatabase, InFile
from tests.support.runs import Runs


@pytest.fixture
def runs(engine: Engine) -> Runs:
    return Runs(engine)


def kept(result: RevertResult) -> dict[str, str]:
    return {it.key: it.reason for it in result.kept_as_is}


def reverted(result: RevertResult) -> dict[str, str]:
    return {it.key: it.change for it in result.reverted}


def test_revert_restores_deletes_and_recreates_what_a_session_changed(runs: Runs) -> None:
    for key in ("changed", "deleted", "twice", "other"):
        runs.put("ann", key, {"by": "ann"})
    runs.put("bad", "changed", 1)
    runs.drop("bad", "deleted")
    runs.put("bad", "twice", 1)
    runs.put("bad", "twice", 2)
    runs.put("bad", "new", 1)
    result = runs.revert(session="bad")
    assert reverted(result) == {"changed": "restored", "deleted": "restored", "twice": "restored", "new": "deleted"}
    assert kept(result) == {}
    assert runs.now() == {key: {"by": "ann"} for key in ("changed", "deleted", "twice", "other")}
    assert [it.undone_versions for it in result.reverted if it.key == "twice"] == [(2, 3)]


def test_events_of_a_revert_name_what_they_undo(runs: Runs) -> None:
    runs.put("ann", "k", 1)
    first = len(runs.events())
    runs.put("bad", "k", 2)
    runs.put("bad", "k", 3)
    runs.put("bad", "new", 3)
    positions = [it["position"] for it in runs.events()[first:]]
    result = runs.revert(session="bad")
    restored, deleted = runs.events()[-2:]
    assert (restored["kind"], restored["value"], restored["undoes"]) == ("ValueWritten", 1, positions[:2])
    assert (deleted["kind"], deleted["undoes"]) == ("ValueDeleted", positions[2:] * 2)
    for event in (restored, deleted):
        assert (event["operation"], event["by"], event["correlation_id"]) == ("revert", "boss", result.correlation_id)
    assert (restored["based_on"], deleted["based_on"]) == (3, 1)
    assert restored["at"] == deleted["at"]
    require_chained(runs.engine.store)


def test_old_events_keep_their_form(runs: Runs) -> None:
    runs.put("ann", "k", 1)
    assert "undoes" not in runs.events()[0]


def test_keys_that_others_changed_since_are_listed_and_not_touched(runs: Runs) -> None:
    runs.put("bad", "k", 1)
    runs.put("ann", "k", 2)
    runs.put("bad", "gone", 1)
    runs.drop("ann", "gone")
    result = runs.revert(session="bad")
    assert (reverted(result), kept(result)) == ({}, {"k": "changed_since", "gone": "changed_since"})
    assert [(it.by, it.version) for it in result.kept_as_is] == [("ann", 2), ("ann", 2)]
    assert result.correlation_id is None
    assert runs.now() == {"k": 2}


def test_key_that_the_run_wrote_before_others_is_not_touched(runs: Runs) -> None:
    runs.put("bad", "k", 1)
    runs.put("ann", "k", [1, "ann"])
    runs.put("bad", "k", 3)
    assert kept(runs.revert(session="bad")) == {"k": "base_written_by_run"}
    assert runs.now() == {"k": 3}


def test_session_that_goes_on_after_a_revert_can_be_reverted_again(runs: Runs) -> None:
    runs.put("ann", "k", 1)
    for value in (2, 3, 4):
        runs.put("bad", "k", value)
        runs.put("bad", "new", value)
        assert reverted(runs.revert(session="bad")) == {"k": "restored", "new": "deleted"}
        assert runs.now() == {"k": 1}


def test_undone_revert_makes_the_value_of_the_run_the_base_again(runs: Runs) -> None:
    runs.put("bad", "k", 1)
    undone = runs.revert(session="bad")
    runs.revert(correlation_id=undone.correlation_id)
    assert runs.now() == {"k": 1}
    runs.put("bad", "k", 2)
    assert kept(runs.revert(session="bad")) == {"k": "base_written_by_run"}


def test_revert_does_not_hide_what_others_wrote_on_top_of_the_run(runs: Runs) -> None:
    runs.put("bad", "k", 1)
    runs.put("ann", "k", 2)
    later = runs.events()[-1]["at"]
    runs.put("bad", "k", 3)
    since = datetime.fromisoformat(later) + timedelta(microseconds=1)
    assert reverted(runs.revert(session="bad", since=since)) == {"k": "restored"}
    runs.put("bad", "k", 4)
    assert kept(runs.revert(session="bad")) == {"k": "base_written_by_run"}
    assert runs.now() == {"k": 4}


def test_since_makes_earlier_writes_of_the_run_the_base(runs: Runs) -> None:
    runs.put("bad", "k", 1)
    runs.put("ann", "k", 2)
    since = runs.events()[-1]["at"]
    runs.put("bad", "k", 3)
    runs.put("bad", "other", 3)
    later = datetime.fromisoformat(since) + timedelta(microseconds=1)
    assert reverted(runs.revert(session="bad", since=later)) == {"k": "restored", "other": "deleted"}
    assert runs.now() == {"k": 2}


def test_agent_within_a_session_is_undone_alone(runs: Runs) -> None:
    engine = runs.engine
    for by, key in (("claude", "a"), ("claude/tests", "b"), ("other", "c")):
        engine.write(engine.requests.values.set("n", key, 1, by, None), runs.caller("shared"))
    assert reverted(runs.revert(session="shared", agent="claude/tests")) == {"b": "deleted"}
    assert reverted(runs.revert(session="shared", agent="claude")) == {"a": "deleted"}
    assert runs.now() == {"c": 1}


def test_namespace_restricts_a_revert(runs: Runs) -> None:
    runs.put("bad", "k", 1)
    call = runs.engine.requests.values.set("other/n", "k", 1, "bad", None)
    runs.engine.write(call, runs.caller("bad"))
    result = runs.revert(session="bad", namespace="other/n")
    assert [(it.namespace, it.key) for it in result.reverted] == [("other/n", "k")]
    assert runs.now() == {"k": 1}


def test_session_is_known_by_its_shown_form_and_by_its_own_text(runs: Runs) -> None:
    runs.put("bad", "k", 1)
    for given in ("bad", runs.session("bad")):
        assert reverted(runs.revert(session=given, dry_run=True)) == {"k": "deleted"}


def test_revert_under_a_correlation_id_is_undone_by_its_own(runs: Runs) -> None:
    runs.put("ann", "k", {"by": "ann"})
    runs.put("ann", "deleted", 1)
    for run in ("one", "two"):
        runs.put(run, "k", run, correlation_id="task-7")
    runs.put("two", "new", [], correlation_id="task-7")
    runs.drop("two", "deleted")
    before = runs.now()
    first = runs.revert(correlation_id="task-7")
    assert runs.now() == {"k": {"by": "ann"}}
    second = runs.revert(correlation_id=first.correlation_id)
    assert runs.now() == before
    assert first.correlation_id != second.correlation_id
    runs.revert(correlation_id=second.correlation_id)
    assert runs.now() == {"k": {"by": "ann"}}


def test_dry_run_lists_the_same_and_changes_nothing(runs: Runs) -> None:
    runs.put("ann", "k", 1)
    runs.put("bad", "k", 2)
    runs.put("bad", "new", 2)
    runs.put("bad", "theirs", 2)
    runs.put("ann", "theirs", 3)
    before = runs.events()
    result = runs.revert(session="bad", dry_run=True)
    assert runs.events() == before
    assert (reverted(result), kept(result)) == ({"k": "restored", "new": "deleted"}, {"theirs": "changed_since"})
    assert (result.dry_run, result.correlation_id, {it.version for it in result.reverted}) == (True, None, {None})
    done = runs.revert(session="bad")
    assert (reverted(done), kept(done)) == (reverted(result), kept(result))


def test_run_that_undid_itself_leaves_nothing_to_revert(runs: Runs) -> None:
    runs.put("bad", "k", 1)
    runs.drop("bad", "k")
    runs.put("ann", "same", 1)
    runs.put("bad", "same", 2)
    runs.put("bad", "same", 1)
    count = len(runs.events())
    assert kept(runs.revert(session="bad")) == {"k": "unchanged", "same": "unchanged"}
    assert len(runs.events()) == count


def test_unknown_run_wrote_nothing(runs: Runs) -> None:
    runs.put("ann", "k", 1)
    result = runs.revert(session="nobody")
    assert (result.reverted, result.kept_as_is) == ([], [])
    assert "wrote no value" in result.hint


def test_key_that_another_agent_claims_is_not_touched(runs: Runs) -> None:
    for key in ("claimed", "covered", "guarded", "own"):
        runs.put("ann", key, 1)
    grant = runs.claim("bad", "src/a.py")
    runs.put("bad", "claimed", 2)
    runs.put("bad", "guarded", 2, guard=[{"resource": "src/a.py", "version": grant}])
    runs.put("bad", "own", 2)
    assert kept(runs.revert(session="bad", dry_run=True)) == {}
    engine = runs.engine
    engine.write(engine.requests.claims.release("src/a.py", "bad"), runs.caller("bad"))
    runs.claim("bob", "custom://n/claimed")
    runs.claim("bob", "src/")
    runs.claim("boss", "custom://n/own")
    result = runs.revert(session="bad")
    assert (reverted(result), kept(result)) == ({"own": "restored"}, {"claimed": "claimed", "guarded": "claimed"})
    assert [(it.by, it.resource) for it in result.kept_as_is] == [("bob", "custom://n/claimed"), ("bob", "src/")]


def test_claim_of_another_caller_without_a_session_keeps_its_key(runs: Runs) -> None:
    engine = runs.engine
    write = engine.requests.values.set("n", "k", 1, "bad", None)
    engine.write(write, Caller(correlation_id="job-1"))
    engine.claim(engine.requests.claims.claim("custom://n/k", "bob"), Caller())
    assert kept(runs.revert(correlation_id="job-1")) == {"k": "claimed"}


def test_claim_of_another_agent_of_the_session_keeps_its_key(runs: Runs) -> None:
    engine = runs.engine
    for key, holder in (("k", "bob"), ("own", "ann/task")):
        engine.write(engine.requests.values.set("n", key, 1, "ann", None), runs.caller("s"))
        engine.claim(engine.requests.claims.claim(f"custom://n/{key}", holder), runs.caller("s"))
    assert kept(runs.revert(session="s", agent="ann", dry_run=True)) == {"k": "claimed"}
    assert kept(runs.revert(session="s", dry_run=True)) == {}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
def test_redacted_base_or_block_is_not_touched(place: str, version: int) -> None:
    kind = InDatabase(place) if place.startswith("postgres") else InFile(place)
    for run, value in (("ann", 1), ("bad", 2), ("bad", 3)):
        with StateStore(place, session=run) as store:
            store.set("n", "k", value, updated_by=run)
    kind.doctored(
        "UPDATE stored_events SET salt = NULL, payload = NULL, payload_hash = salt"
        f" WHERE originator_version = {version}"
    )
    with StateStore(place) as store:
        assert kept(store.revert(session="bad", reverted_by="boss")) == {"k": "redacted"}
        assert store.get("n", "k").value == 3


def test_value_comes_back_with_the_rest_of_its_life(runs: Runs) -> None:
    runs.put("ann", "k", 1, ttl=3600)
    ends = runs.engine.read(runs.engine.requests.values.get("n", "k")).expires_at
    runs.put("bad", "k", 2)
    runs.revert(session="bad")
    assert runs.engine.read(runs.engine.requests.values.get("n", "k")).expires_at == ends


def test_value_that_would_have_expired_by_now_is_deleted(runs: Runs) -> None:
    runs.put("ann", "k", 1, ttl=0.01)
    ended = datetime.now(UTC) + timedelta(seconds=0.01)
    runs.put("bad", "k", 2)
    while datetime.now(UTC) <= ended:
        pass
    assert reverted(runs.revert(session="bad")) == {"k": "deleted"}


def test_expiry_of_a_value_belongs_to_the_run_that_wrote_it(runs: Runs) -> None:
    runs.put("ann", "k", 1)
    runs.put("bad", "k", 2, ttl=0.000_001)
    with pytest.raises(NotFoundError):
        runs.engine.read(runs.engine.requests.values.get("n", "k"))
    assert reverted(runs.revert(session="bad")) == {"k": "restored"}
    assert runs.now() == {"k": 1}


def test_repeated_request_reverts_once(runs: Runs) -> None:
    runs.put("ann", "k", 1)
    runs.put("bad", "k", 2)
    requests, caller = runs.engine.requests.reverts, runs.caller("boss", request_id="r-1")
    writes = runs.engine.read(requests.find(session="bad"))
    first = runs.engine.write(requests.revert(writes, "boss"), caller)
    count = len(runs.events())
    again = runs.engine.write(requests.revert(runs.engine.read(requests.find(session="bad")), "boss"), caller)
    assert (again, len(runs.events())) == (first, count)


def test_writes_between_reading_and_reverting_are_not_overwritten(runs: Runs) -> None:
    for key in ("theirs", "more"):
        runs.put("ann", key, 1)
        runs.put("bad", key, 2)
    requests = runs.engine.requests.reverts
    writes = runs.engine.read(requests.find(session="bad"))
    runs.put("bob", "theirs", 3)
    runs.put("bad", "more", 3)
    result = runs.engine.write(requests.revert(writes, "boss"), runs.caller("boss"))
    assert (reverted(result), kept(result)) == ({"more": "restored"}, {"theirs": "changed_since"})
    assert runs.now() == {"theirs": 3, "more": 1}


def test_revert_during_writes_overwrites_nothing_of_others(runs: Runs) -> None:
    keys = [str(number) for number in range(10)]
    for key in keys:
        runs.put("ann", key, 0)
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            runs.put("bob" if number % 3 else "bad", keys[number * 7 % 10], number)

    with ThreadPoolExecutor(2) as threads:
        writers = [threads.submit(write) for _ in range(2)]
        try:
            results = [runs.revert(session="bad", namespace="n") for _ in range(20)]
        finally:
            done.set()
        for writer in writers:
            writer.result()
    authors: dict[tuple[str, int], str] = {}
    after = 0
    while page := runs.engine.read(runs.engine.requests.events.page(runs.engine.requests.events.choice("n"), after)):
        authors |= {(it.stream, it.version): it.by for it in page.events}
        if (after := page.next_position) == page.bookmark:
            break
    before = {authors[stream, version - 1] for (stream, version), by in authors.items() if by == "boss"}
    assert before <= {"bad"}
    assert len([by for by in authors.values() if by == "boss"]) == sum(len(it.reverted) for it in results)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "session: required, or correlation_id"),
        ({"agent": "ann"}, "agent: needs session"),
        ({"session": "s", "correlation_id": "c"}, "correlation_id: not together with session"),
        ({"correlation_id": "c", "agent": "ann"}, "agent: needs session"),
        ({"session": " "}, "session: must not be blank"),
        ({"session": "s", "agent": "ann/"}, "agent: must have a name on both sides"),
        ({"session": "s", "since": "yesterday"}, "since: must be a time"),
        ({"session": "s", "since": "2999-01-01T00:00:00Z"}, "since: is in the future"),
        ({"session": "s", "namespace": ""}, "namespace: must not be blank"),
        ({"session": "ann", "by": "a/"}, "reverted_by: must have a name on both sides"),
    ],
)
def test_bad_arguments_are_refused_by_name_and_change_nothing(runs: Runs, arguments: dict[str, Any], said: str) -> None:
    runs.put("ann", "k", 1)
    with pytest.raises(InvalidError) as refused:
        runs.revert(**arguments)
    assert str(refused.value).startswith(said)
    assert len(runs.events()) == 1


def test_only_administrators_may_revert(engine: Engine) -> None:
    def requests(*grants: str) -> Any:
        return engine.requests.within(Grants.parse(grants)).reverts

    for grants in (("write:*", "read:*", "claim:*"), ("admin:n",), ("admin:n*",)):
        with pytest.raises(DeniedError) as refused:
            requests(*grants).find(session="s")
        assert refused.value.needed == "admin:*"
    requests("admin:n").find(session="s", namespace="n")
    requests("admin:*").find(session="s")
    with pytest.raises(DeniedError):
        requests("admin:n").find(session="s", namespace="m")


def test_more_than_a_thousand_keys_are_refused() -> None:
    with StateStore(MEMORY, session="bad") as store:
        for number in range(1_001):
            store.set("n", str(number), number, updated_by="ann")
        store.set("m", "k", 1, updated_by="ann")
        with pytest.raises(InvalidError, match="more than 1000 keys"):
            store.revert(reverted_by="boss", session="bad")
        assert len(store.revert(reverted_by="boss", session="bad", namespace="m").reverted) == 1
        store.delete("n", "7", deleted_by="ann")
        assert len(store.list_keys("n")) == 1_000


def test_more_bytes_than_writers_can_wait_for_are_refused(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdlog.adapters.api.changes.reverts.MAX_BYTES", 12)
    for key in ("a", "b"):
        runs.put("ann", key, "12345")
        runs.put("bad", key, 1)
    with pytest.raises(InvalidError, match="session: the values to restore have more than 12 bytes"):
        runs.revert(session="bad")
    runs.put("bob", "b", 2)
    assert reverted(runs.revert(session="bad")) == {"a": "restored"}


def test_library_shows_the_session_to_revert(place: str) -> None:
    with StateStore(place, session="run-1") as run:
        run.set("n", "k", {"budget": 1000}, updated_by="ann")
        if place == MEMORY:
            session: str | None = "run-1"
            result = run.revert(reverted_by="boss", session=session, dry_run=True)
            assert reverted(result) == {"k": "deleted"}
            return
    with StateStore(place) as store:
        session = store.blame("n", "k").author.session
        assert reverted(store.revert(reverted_by="boss", session=session, reason="wrong budget")) == {"k": "deleted"}
        found = store.blame("n", "k")
        assert (found.author.updated_by, found.author.reason) == ("boss", "wrong budget")
        assert (found.author.operation, found.author.undoes) == ("revert", (1, 1))
