"""Export, import and backup: what leaves a store is whole, and what is damaged leaves the other one as it was."""

import errno
import io
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

import holdlog
from holdlog.adapters.stores.codec import FIRST_DIGEST, digest_event, hash_payload
from holdlog.adapters.stores.sqlite.read_only import ReadOnlyStore
from tests.support.faults import CHANGES, SHIM, WRITE, Disk, Faults, entries
from tests.support.library import Blocking, in_thread
from tests.support.programs import environment
from tests.support.soundness import log_of, require_sound

in_postgres = pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))


def fill(store):
    """Nine events: values, a claim that waits for another, and a queue."""
    for value in (1, {"text": "ü\0 ☃"}):
        store.set("n", "a", value, updated_by="ann", reason="why", ttl_seconds=9000)
    store.set("n/%", "b", None, updated_by="ann", request_id="r-1")
    store.delete("n/%", "b", deleted_by="ann")
    store.claim("src/", agent="ann", also=["docs/"])
    store.claim("src/a.py", agent="ben", receipt="s-ben", wait_seconds=0.01)
    store.claim("b.py", agent="ann", mode="shared")
    store.release("b.py", agent="ann", outcome="modified", note="done")


@pytest.fixture
def exported(tmp_path):
    """The lines of an export of that store."""
    with holdlog.StateStore(tmp_path / "old.db", session="s-ann") as store:
        fill(store)
        return export(store)


def export(store, **options):
    store.export(file := io.BytesIO(), **options)
    return [json.loads(line) for line in file.getvalue().splitlines()]


def write(lines):
    return io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def read(store):
    """What readers see, except times that go on."""
    board = store.status()
    claims = [(it.resource, it.held_by, it.version, it.mode) for it in board.claims]
    queues = [(it.resource, [waiter.agent for waiter in it.line]) for it in board.queues]
    records = [(it, [record[:7] for record in store.list_keys(it)]) for it in store.list_namespaces()]
    return claims, queues, records, store.history("n/%", "b")


def forge(lines):
    """An export whose digests somebody has computed again."""
    digest, lines = FIRST_DIGEST, [dict(line) for line in lines]
    for line in lines[1:-1]:
        hashed = hash_payload(line["payload"], bytes.fromhex(line["salt"]))
        facts = [line[name] for name in ("position", "stream", "version", "topic", "at", "meta")]
        digest = digest_event(digest, *facts, hashed)
        line["digest"] = digest.hex()
    lines[-1]["digest"] = digest.hex()
    return lines


# --- export


def test_export_is_a_chain_whose_texts_may_be_left_out(exported, tmp_path):
    with holdlog.StateStore(tmp_path / "old.db") as store:
        some = export(store, first=3, last=5, values=False)
    assert [line.get("position") for line in some] == [None, 3, 4, 5, None]
    assert (some[0]["first"], some[0]["last"], some[0]["previous_digest"]) == (3, 5, exported[2]["digest"])
    assert (some[-1]["end"], some[-1]["digest"]) == (5, exported[5]["digest"])
    for whole, bare in zip(exported[3:6], some[1:-1], strict=True):
        assert {"payload", "salt"} & bare.keys() == set()
        assert bare["payload_hash"] == hash_payload(whole["payload"], bytes.fromhex(whole["salt"])).hex()
        assert bare.items() - {("payload_hash", bare["payload_hash"])} <= whole.items()


def test_export_writes_a_private_new_file(exported, tmp_path):
    path = tmp_path / "log"
    with holdlog.StateStore(tmp_path / "old.db") as store:
        assert store.export(path).last == 9
        assert path.stat().st_mode & 0o777 == 0o600
        assert [json.loads(line) for line in path.read_text().splitlines()] == exported
        for place in (path, tmp_path / "old.db"):
            before = place.read_bytes() if place == path else None
            with pytest.raises(holdlog.StoreError, match="exists"):
                store.export(place)
            assert before is None or place.read_bytes() == before
        with pytest.raises(holdlog.StoreError, match="No such file"):
            store.export(tmp_path / "missing" / "log")
    assert not list(tmp_path.glob("*.part"))


def test_exports_to_one_path_leave_one_and_no_other_file_is_touched(exported, tmp_path):
    path, own = tmp_path / "log", tmp_path / "log.part"
    own.write_text("my own")
    with holdlog.StateStore(tmp_path / "old.db") as store:

        def attempt():
            try:
                return store.export(path).last
            except holdlog.StoreError as refusal:
                return "exists" in str(refusal)

        exports = [in_thread(attempt) for _ in range(4)]
        assert sorted(it.result() for it in exports) == [True, True, True, 9]
    assert [json.loads(line) for line in path.read_text().splitlines()] == exported
    assert (own.read_text(), sorted(tmp_path.glob("log*"))) == ("my own", [path, own])


@pytest.mark.xdist_group("postgres")
def test_redaction_during_an_export_does_not_change_it(postgres):
    class File(io.BytesIO):
        def write(self, line):
            if not self.tell():
                store.redact("record:n/k@1", redacted_by="ann", reason="it leaked")
            return super().write(line)

    with holdlog.StateStore(postgres) as store, holdlog.StateStore(":memory:") as target:
        for value in ("secret", "safe"):
            store.set("n", "k", value, updated_by="ann")
        store.export(file := File())
        assert target.import_(io.BytesIO(file.getvalue())).last == 2
        assert [it.value for it in target.history("n", "k")] == ["safe", "secret"]
        assert [it.value for it in store.history("n", "k")] == ["safe", None]


@pytest.mark.parametrize(
    "options", [{"last": 10}, {"first": 6, "last": 5}, {"first": 0}, {"destination": 7}, {"destination": io.StringIO()}]
)
def test_export_of_what_is_not_there_is_refused(exported, tmp_path, options):
    with holdlog.StateStore(tmp_path / "old.db") as store, pytest.raises(holdlog.InvalidError):
        store.export(**({"destination": io.BytesIO()} | options))


def test_log_with_a_gap_is_not_exported(exported, tmp_path):
    with closing(sqlite3.connect(tmp_path / "old.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM events WHERE position = 4")
    with holdlog.StateStore(tmp_path / "old.db") as store, pytest.raises(holdlog.StoreError, match="lacks an event"):
        export(store)


# --- import


@pytest.mark.parametrize("kind", ["file", "memory", "coroutines", in_postgres])
def test_imported_log_is_whole_and_goes_on(exported, tmp_path, kind, request):
    places = {"memory": lambda: ":memory:", "postgres": lambda: request.getfixturevalue("postgres")}
    place = places.get(kind, lambda: tmp_path / "new.db")()
    with holdlog.StateStore(tmp_path / "old.db") as old:
        before, events = read(old), log_of(old)
    store = (Blocking if kind == "coroutines" else holdlog.StateStore)(place, session="s-ann")
    try:
        result = store.import_(write(exported))
        assert (result.store, result.last, result.digest) == (exported[0]["store"], 9, exported[-1]["digest"])
        assert read(store) == before
        *same, last = log_of(store)
        assert same == events
        assert (last.kind, last.position, last.fields["store"]) == ("Imported", 10, exported[0]["store"])
        assert store.claim("src/", agent="ann").status == "already_claimed"
        assert store.set("n", "a", 3, updated_by="ann", expected_version=2).version == 3
        assert store.release("src/", agent="ann").version == 2
        assert store.verify()
        again = export(store)
        assert again[1:10] == exported[1:10]
        assert again[0]["store"] != exported[0]["store"]
        with pytest.raises(holdlog.StoreError, match="has events"):
            store.import_(write(exported))
        assert export(store) == again
    finally:
        (store.stop if kind == "coroutines" else store.close)()
    with holdlog.StateStore(":memory:") as third:
        assert third.import_(write(again)).last == again[-1]["end"]
        assert third.get("n", "a").value == 3


def test_imported_claims_have_a_full_life(exported, tmp_path, monkeypatch):
    shift, now = [0], time.monotonic_ns
    monkeypatch.setattr(time, "monotonic_ns", lambda: now() + shift[0] * 1_000_000_000)
    path = tmp_path / "log"
    path.write_bytes(write(exported).getvalue())
    with holdlog.StateStore(tmp_path / "new.db") as store:
        store.import_(path)
        for seconds, holder in ((100, "ann"), (190, "ann"), (20, "dan")):
            shift[0] += seconds
            assert store.claim("src/a.py", agent="dan").status == ("busy" if holder == "ann" else "claimed")
        assert store.status().queues == []


DAMAGES = {
    "cut": lambda lines: lines[:-1],
    "cut to nothing": lambda lines: [],
    "longer": lambda lines: [*lines, lines[-1]],
    "no end": lambda lines: [*lines[:5], {"end": 4, "digest": lines[4]["digest"]}],
    "gap": lambda lines: lines[:4] + lines[5:],
    "swapped": lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]],
    "edited text": lambda lines: [*lines[:1], lines[1] | {"payload": '{"value":2}'}, *lines[2:]],
    "edited author": lambda lines: [*lines[:1], lines[1] | {"meta": '{"by":"eve"}'}, *lines[2:]],
    "edited number": lambda lines: [*lines[:1], lines[1] | {"version": "1"}, *lines[2:]],
    "no text": lambda lines: [*lines[:2], bare(lines[2]), *lines[3:]],
    "redacted text": lambda lines: forge([*lines[:9], lines[9] | REDACTION, lines[10]]),
    "other end": lambda lines: [*lines[:-1], lines[-1] | {"digest": "00" * 32}],
    "other format": lambda lines: [lines[0] | {"holdlog_export": 2}, *lines[1:]],
    "a prefix": lambda lines: [lines[0] | {"log_end": 10}, *lines[1:]],
    "a range": lambda lines: [lines[0] | {"first": 2}, *lines[2:]],
    "without values": lambda lines: [lines[0] | {"values": False}, *lines[1:]],
    "no export": lambda lines: [{"namespace": "n"}],
    "no object": lambda lines: [lines[0], 7],
    "half an object": lambda lines: [*lines[:3], {"position": 3}],
    "unknown claim": lambda lines: forge([*lines[:4], lines[8] | {"position": 4, "at": lines[3]["at"]}, lines[-1]]),
    "clock back": lambda lines: forge([*lines[:4], lines[4] | {"at": 0}, *lines[5:]]),
    "half a microsecond": lambda lines: forge([*lines[:9], lines[9] | {"at": lines[9]["at"] + 0.5}, lines[10]]),
    "unknown kind": lambda lines: forge([*lines[:4], lines[4] | {"topic": "Eval"}, *lines[5:]]),
    "lone surrogate": lambda lines: [*lines[:4], lines[4] | {"stream": "\ud800"}, *lines[5:]],
    "huge number": lambda lines: forge([*lines[:4], lines[4] | {"version": 2**70}, *lines[5:]]),
}


REDACTION = {"stream": "store:log", "version": 1, "topic": "TextsRedacted", "meta": '{"by":"ann","positions":[1]}'}


def bare(line):
    hashed = hash_payload(line["payload"], bytes.fromhex(line["salt"])).hex()
    return {name: it for name, it in line.items() if name not in ("payload", "salt")} | {"payload_hash": hashed}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_export_is_refused_and_changes_nothing(exported, damage):
    with holdlog.StateStore(":memory:") as store:
        with pytest.raises(holdlog.HoldlogError) as refused:
            store.import_(write(DAMAGES[damage](list(exported))))
        assert type(refused.value) is (holdlog.StoreError if damage == "unknown kind" else holdlog.InvalidError)
        assert ("only a part" in str(refused.value)) == (damage in ("a prefix", "a range", "without values"))
        assert len(str(refused.value).splitlines()) == 1
        assert (log_of(store), store.status().claims, store.list_namespaces()) == ([], [], [])
        assert store.import_(write(exported)).last == 9


def test_store_itself_is_no_export(exported, tmp_path):
    with holdlog.StateStore(":memory:") as store:
        with pytest.raises(holdlog.InvalidError, match="is a store"):
            store.import_(tmp_path / "old.db")
        with pytest.raises(holdlog.StoreError, match="No such file"):
            store.import_(tmp_path / "missing")
        with pytest.raises(holdlog.InvalidError, match="source"):
            store.import_(7)


def test_redacted_event_stays_its_hash(exported, tmp_path):
    with holdlog.StateStore(tmp_path / "old.db") as store:
        store.redact("record:n/a@1", redacted_by="ann", reason="it leaked")
        lines = export(store)
    assert lines[1] == bare(exported[1])
    with holdlog.StateStore(":memory:") as store:
        store.import_(write(lines))
        assert [it.value for it in store.history("n", "a")] == [{"text": "ü\0 ☃"}, None]
        assert export(store)[1:11] == lines[1:11]
        store.set("n", "a", 3, updated_by="ann")
        assert store.redact("record:n/a@2", redacted_by="ann", reason="this, too").redacted == 1
        assert store.verify()


@pytest.mark.parametrize("kind", ["file", in_postgres])
def test_foreign_events_pass_unharmed(exported, tmp_path, kind, request):
    facts = {
        "stream": "foreign:/7f",
        "topic": "foreign:bank:Account.Opened",
        "payload": '{"state":"gASV"}',
        "meta": "{}",
    }
    lines = forge([*exported[:-1], exported[-2] | facts | {"position": 10, "version": 1}, exported[-1] | {"end": 10}])
    lines[0] |= {"last": 10, "log_end": 10}
    place = tmp_path / "new.db" if kind == "file" else request.getfixturevalue("postgres")
    with holdlog.StateStore(place) as store:
        assert store.import_(write(lines)).position == 11
        assert export(store)[1:11] == lines[1:11]
        assert store.verify()
        assert store.list_namespaces() == ["n"]
        assert store.set("n", "a", 3, updated_by="ann").version == 3


# --- backup


def test_backup_of_a_store_in_use_is_one_private_whole_store(exported, tmp_path):
    folder = tmp_path / "backups"
    folder.mkdir()
    with holdlog.StateStore(tmp_path / "old.db") as store:
        many = [{"op": "set", "namespace": "m", "key": f"k{number}", "value": "x" * 1000} for number in range(999)]
        store.transact(many, updated_by="ann")
        writer = in_thread(lambda: [store.set("n", "a", number, updated_by="ben") for number in range(50)])
        results = [store.backup(folder) for _ in range(3)]
        writer.result()
        lines = export(store)
    assert sorted(map(str, folder.iterdir())) == sorted(it.path for it in results)
    for result in results:
        assert Path(result.path).stat().st_mode & 0o777 == 0o600
        assert lines[result.position]["digest"] == result.digest
        with holdlog.StateStore(result.path) as copy:
            assert log_of(copy)[-1].position == result.position
            assert export(copy)[1:-1] == lines[1 : result.position + 1]
        require_sound(Path(result.path))


def test_store_that_cannot_be_written_is_backed_up(exported, tmp_path):
    (tmp_path / "copy").touch(0o600)
    assert ReadOnlyStore(str(tmp_path / "old.db"), "").backup(str(tmp_path / "copy")).position == 9


@pytest.mark.xdist_group("postgres")
def test_backup_of_postgresql_says_what_one_does_instead(postgres, tmp_path):
    with holdlog.StateStore(postgres) as store, pytest.raises(holdlog.StoreError, match="pg_dump"):
        store.backup(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_backup_into_a_missing_folder_is_refused(tmp_path):
    with holdlog.StateStore(":memory:") as store, pytest.raises(holdlog.StoreError, match="No such file"):
        store.backup(tmp_path / "missing")


# --- faults

FORKS = """
import io, os, sys
import holdlog
with holdlog.StateStore(":memory:") as store, holdlog.StateStore(":memory:") as other:
    store.export(file := io.BytesIO())
    other.import_(io.BytesIO(file.getvalue()))
print("ready", flush=True)
for line in sys.stdin:
    place, call, argument = line.split()
    if not (child := os.fork()):
        try:
            with holdlog.StateStore(place) as store:
                getattr(store, call)(argument)
        except holdlog.HoldlogError:
            os._exit(1)
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""
"""Makes each call of stdin in a child, and says how the child ended."""


kill = pytest.param(CHANGES, -signal.SIGKILL, id="kill")
full = pytest.param(WRITE, errno.ENOSPC, id="full")


@SHIM
@pytest.mark.rest
@pytest.mark.parametrize(("kinds", "action"), [kill, full])
@pytest.mark.parametrize("call", ["import_", "backup"])
def test_fault_leaves_nothing_or_all(tmp_path, call, kinds, action):
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    faults = Faults(folder, tmp_path / "faults")
    make_source(folder if call == "backup" else tmp_path, tmp_path / "log")
    ended = struck = 0
    with subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment(faults.env),
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        for number in (*range(1, 60, 5), *range(60, 10_000, 97)):
            (place := folder / f"{call}-{number}").mkdir(mode=0o700)
            words = (
                (place / "new.db", call, tmp_path / "log") if call == "import_" else (folder / "old.db", call, place)
            )
            faults.arm(kinds, action, number, number)
            print(*words, file=process.stdin, flush=True)
            code = os.waitstatus_to_exitcode(int(process.stdout.readline()))
            is_struck = faults.count >= number
            faults.disarm()
            assert code in ((0, 1) if action > 0 else (0, -signal.SIGKILL))
            require_nothing_or_all(place, code)
            struck += code != 0
            if not is_struck:
                ended += 1
                break
        process.stdin.close()
    assert (ended, struck >= 5) == (1, True), struck


@SHIM
@pytest.mark.rest
@pytest.mark.parametrize("call", ["backup", "export"])
def test_power_cut_leaves_nothing_or_all(tmp_path, call):
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    faults = Faults(folder, tmp_path / "faults")
    make_source(tmp_path, tmp_path / "log")
    words = f"{tmp_path / 'old.db'} {call} {folder if call == 'backup' else folder / 'new.db'}\n"
    program = [sys.executable, "-c", FORKS]
    done = subprocess.run(program, input=words, capture_output=True, text=True, env=environment(faults.recorded))
    assert done.stdout == "ready\n0\n", done
    disk, dice, calls, cut = Disk(), random.Random(1), list(entries(faults.journal)), tmp_path / "cut"
    for number, entry in enumerate(calls, start=1):
        disk.add(entry)
        if number % 100 and number < len(calls) - 6:
            continue
        for kept in (0.0, 0.5):
            (place := cut / f"{number}-{kept}").mkdir(mode=0o700, parents=True)
            disk.lose_power(place, dice, kept)
            if call == "backup":
                require_nothing_or_all(place, 0 if number == len(calls) else -1)
            else:
                is_there = (place / "new.db").exists()
                assert is_there or number < len(calls)
                assert not is_there or (place / "new.db").read_bytes() == (tmp_path / "log").read_bytes()


LAST = 3_000


def make_source(folder, log):
    with holdlog.StateStore(folder / "old.db") as store:
        for number in range(LAST // 500):
            steps = [{"op": "set", "namespace": "n", "key": f"{key}", "value": "x" * 500} for key in range(500)]
            store.transact(steps, updated_by=f"w{number}")
        store.export(log)


def require_nothing_or_all(place, code):
    """`code`: how the process ended that imported to `new.db` in this folder, or made a backup in it."""
    for path in place.glob("*.db"):
        is_import = path.name == "new.db"
        with holdlog.StateStore(path) as store:
            last = store.events(after=0, limit=1).events and store.list("n", limit=1).position
            assert last in ((LAST + 1, *([] if code == 0 else [[]])) if is_import else (LAST,))
        require_sound(path)
    if code == 0:
        assert list(place.glob("*.db"))
    assert code < 0 or not list(place.glob("*.part"))
