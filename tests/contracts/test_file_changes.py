"""Changes of files in the log of every store: what they leave as it is, and how they are found again."""

from contextlib import closing
from pathlib import Path

import pytest

from holdlog import StateStore, StoreError
from holdlog.adapters.api.claims.files import change_by_another
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.claims.commands import AcquireClaim, RecordFileChange, ReleaseClaim, ReleaseOutcome
from holdlog.domain.message import NOBODY, Caller
from holdlog.domain.ports import Store
from tests.support.claim_calls import by, claim, wait
from tests.support.clock import Clock
from tests.support.command_line import run_command
from tests.support.commands import require_chained, require_views_equal_the_log, run
from tests.support.copies import exported, imported, require_fork
from tests.support.evidence import events_of, files_of, verified
from tests.support.kinds import InDatabase, InFile, Kind

FIRST, SECOND = "ab" * 32, "cd" * 32


def change(store: Store, sha256: str | None, agent: str = "ann", caller: Caller = NOBODY, resource: str = "a") -> None:
    run(store, RecordFileChange(resource=resource, agent=agent, sha256=sha256), caller)


def test_change_leaves_holder_and_queue_as_they_are(store: Store) -> None:
    held = claim(store)
    wait(store, "a", "bob")
    change(store, FIRST, "cleo", by("s2"))
    with store.reader() as reader:
        now = reader.claim("a")
        assert [(it.version, it.agent) for it in now.grants] == [(held.version, "ann")]
        assert [it.agent for it in reader.tickets(["a"])] == ["bob"]
        assert len(reader.leases.of(["a"])) == 2
    outcome = run(store, ReleaseClaim(resource="a", agent="ann", version=held.version), by())
    assert isinstance(outcome, ReleaseOutcome)
    assert outcome.granted_to == "bob"
    require_views_equal_the_log(store)
    require_chained(store)


def test_changed_file_that_nobody_claimed_is_free(store: Store) -> None:
    change(store, FIRST)
    change(store, None)
    with store.reader() as reader:
        assert reader.claim("a").version == 2
        assert reader.claims(None, -1) == []
    assert claim(store).version == 3
    require_views_equal_the_log(store)
    require_chained(store)


def test_change_by_another_session_is_found_if_it_is_after_the_read(store: Store, clock: Clock) -> None:
    change(store, FIRST, "bob", by("s2"))
    clock.pass_by(1)
    read_at = clock()
    clock.pass_by(1)
    change(store, FIRST, "eva", by("s3"))
    change(store, SECOND, "ann", by("s1"))  # another agent of the session
    change(store, FIRST, "program", NOBODY)
    change(store, SECOND, "ann", by("s1"), resource="b")
    change(store, SECOND, "program", NOBODY, resource="b")
    with store.reader() as reader:
        found = change_by_another(reader, "a", ["s1"], read_at, None)
        assert found is not None
        assert (found.agent, found.sha256, found.position) == ("eva", FIRST, 2)
        assert change_by_another(reader, "a", ["s1"], clock(), None) is None
        assert change_by_another(reader, "b", ["s1"], read_at, None) is None
        assert change_by_another(reader, "b", ["s1"], read_at, "bob") is not None  # agents of a shared session
        assert change_by_another(reader, "b", ["s1"], read_at, "ann") is None
        assert change_by_another(reader, "c", ["s1"], 0, None) is None


def test_changes_are_found_among_many_claims_newest_first(engine: Engine) -> None:
    for number in range(130):  # more than a page of events
        held = run_in(engine, AcquireClaim(resource="a", agent="ann"))
        run_in(engine, ReleaseClaim(resource="a", agent="ann", version=held.version))
        if number in (0, 64):
            run_in(engine, RecordFileChange(resource="a", agent=f"ann/{number}", sha256=FIRST))
    found = engine.read(engine.requests.questions.file_changes("a"))
    assert [it.agent for it in found.changes] == ["ann/64", "ann/0"]
    assert found.more is None
    page = engine.read(engine.requests.questions.file_changes("a", limit=1))
    assert ([it.agent for it in page.changes], page.more) == (["ann/64"], True)
    held_by = [it.held_by for it in engine.read(engine.requests.questions.history("a", limit=1)).holds]
    assert held_by == ["ann"]


def test_file_that_was_changed_and_never_claimed_has_no_holds(engine: Engine) -> None:
    run_in(engine, RecordFileChange(resource="a", agent="ann", sha256=FIRST))
    found = engine.read(engine.requests.questions.history("a"))
    assert (found.holds, found.waits) == ([], [])


def run_in(engine: Engine, command: AcquireClaim | ReleaseClaim | RecordFileChange):  # type: ignore[no-untyped-def]
    return engine.writer.run(command, engine.caller)


# --- as others see them: rebuilds, exports, evidence, older releases


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """A store in which ann changed and removed `a` while she held it."""
    place = tmp_path / "state.db" if request.param == "sqlite" else request.getfixturevalue("postgres")
    found = InFile(place) if isinstance(place, Path) else InDatabase(place)
    with closing(open_holdlog(place)) as engine:
        run_in(engine, AcquireClaim(resource="a", agent="ann"))
        for sha256 in (FIRST, None):
            run_in(engine, RecordFileChange(resource="a", agent="ann", sha256=sha256))
    return found


def test_views_rebuilt_from_changes_are_equal(kind: Kind) -> None:
    before = kind.views()
    kind.rebuilt()
    assert kind.views() == before
    assert kind.unsound() == []


def test_export_and_import_keep_changes(kind: Kind, tmp_path: Path) -> None:
    lines = exported(kind.place)
    assert sum(b"FileChanged" in line for line in lines) == 2
    imported(lines, tmp_path / "imported.db")
    require_fork(kind.place, tmp_path / "imported.db")
    with closing(open_holdlog(kind.place)) as ours, closing(open_holdlog(tmp_path / "imported.db")) as theirs:
        changes = [engine.read(engine.requests.questions.file_changes("a")).changes for engine in (ours, theirs)]
    assert changes[0] == changes[1]
    assert len(changes[0]) == 2


def test_evidence_proves_changes(kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "case.zip"
    code, _, err = run_command(capsys, "evidence", "--db", str(kind.place), "-o", str(bundle), "--resource", "a")
    assert (code, err) == (0, "")
    kinds = [it["topic"] for it in events_of(files_of(bundle))]
    assert kinds == ["ClaimGranted", "FileChanged", "FileChanged"]
    assert verified(bundle)[0]


def test_release_that_does_not_know_changes_still_claims_but_reads_no_events(
    kind: Kind, capsys: pytest.CaptureFixture[str]
) -> None:
    kind.doctored("UPDATE stored_events SET topic = 'FromTheFuture' WHERE topic = 'FileChanged'")
    before = kind.views()
    with StateStore(kind.place, session="s1") as store:
        assert store.claim("a", agent="bob").status == "busy"
        assert store.claim("b", agent="bob").status == "claimed"
        force = ["release", "a", "--db", str(kind.place), "--force", "--agent", "boss", "--reason", "lunch"]
        assert run_command(capsys, *force)[0] == 0
        assert store.claim("a", agent="bob").status == "claimed"
        with pytest.raises(StoreError, match="unknown topic 'FromTheFuture'; a newer holdlog may have written it"):
            list(store.events())
    with pytest.raises(StoreError, match="a newer holdlog may have written it"):
        kind.rebuilt()
    assert kind.views()["claims"] != before["claims"]
