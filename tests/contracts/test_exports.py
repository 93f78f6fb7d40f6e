"""An export of a log, and the store that is imported from it, from each kind to each."""

import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore, StoreError
from holdlog.adapters.compose import examine
from holdlog.adapters.python import copying
from holdlog.adapters.stores.copying import exported as format_of_exports
from holdlog.adapters.stores.copying import writing
from holdlog.adapters.stores.event_log.audit import Faults
from holdlog.adapters.stores.event_log.codec import EncodedEvent, expected_digest
from holdlog.adapters.stores.event_log.tree import check_tree
from holdlog.domain.envelope import NO_DIGEST
from holdlog.domain.merkle import Frontier, leaf
from holdlog.domain.value import Json
from holdlog.projections.tree import LogTree
from tests.contracts.test_copy import fill, meta, views
from tests.support.commands import put, redact, require_chained, require_views_equal_the_log, rows, run, transact
from tests.support.copies import exported, imported, parsed, require_fork
from tests.support.older import SCHEMA_1, lay
from tests.support.places import Place, Somewhere, engine, places, stands

PAIRS = list(itertools.product(["file", "schema"], repeat=2))
Lines = list[bytes]


@pytest.fixture
def somewhere(tmp_path: Path, postgres_server: str) -> Iterator[Somewhere]:
    with places(tmp_path, postgres_server) as found:
        yield found


@pytest.fixture(params=PAIRS, ids="-to-".join)
def pair(request: pytest.FixtureRequest, somewhere: Somewhere) -> tuple[Place, Place]:
    return somewhere(request.param[0]), somewhere(request.param[1])


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    """The header, an event of each of two keys and a second version of the first, and the trailer."""
    path = tmp_path / "source.db"
    with StateStore(path) as store:
        store.set("n", "a", {"x": 1}, updated_by="ann", reason="why")
        store.set("n", "b", 2, updated_by="bob")
        store.set("n", "a", {"x": 3}, updated_by="ann", expected_version=1)
    return exported(path)


def test_import_restores_every_event_and_all_views(pair: tuple[Place, Place]) -> None:
    source, target = pair
    fill(source)
    report = imported(exported(source), target)
    assert report.store_id == meta(target, "store_id") != meta(source, "store_id")
    assert (report.events, report.position, report.kept_id) == (18, 19, False)
    require_fork(source, target)
    with engine(source) as ours, engine(target) as theirs:
        assert views(theirs) == views(ours)
        require_chained(theirs)
        require_views_equal_the_log(theirs)
    assert [it for it in examine(target) if it.level == "bad"] == []


def test_a_log_without_events_can_be_exported_and_imported(pair: tuple[Place, Place]) -> None:
    source, target = pair
    StateStore(source).close()
    assert imported(exported(source), target)[2:4] == (0, 1)
    require_fork(source, target)
    with StateStore(target) as store:
        assert store.set("n", "k", 1, updated_by="ann").version == 1


def test_claim_of_an_imported_store_lasts_for_the_grace_period(pair: tuple[Place, Place]) -> None:
    source, target = pair
    with StateStore(source) as store:
        store.claim("src/", agent="ann", lease_seconds=500)
    imported(exported(source), target)
    with StateStore(target) as store:
        busy = store.claim("src/a.py", agent="eve")
        assert busy.status == "busy"
        again = store.claim("src/", agent="ann")
        assert (again.status, again.resumed) == ("claimed", True)


def test_every_line_of_an_export_is_a_cloud_event(somewhere: Somewhere) -> None:
    fill(source := somewhere("file"))
    header, *events, trailer = parsed(exported(source))
    store_id = meta(source, "store_id")
    for line in (header, *events, trailer):
        assert line["specversion"] == "1.0"
        assert line["source"] == f"urn:uuid:{store_id}"
        assert line["type"].startswith("holdlog.")
        assert datetime.fromisoformat(line["time"]).tzinfo is not None
    assert len({line["id"] for line in (header, *events, trailer)}) == len(events) + 2
    assert header["data"] == {"format": "holdlog.log", "version": "1.0", "events": 18}
    tree = Frontier()
    for line in events:
        tree.add(leaf(bytes.fromhex(line["digest"])))
    assert trailer["data"] == {"events": 18, "root": tree.root().hex()}
    assert [line["position"] for line in events] == list(range(1, 19))
    first = events[0]
    assert (first["id"], first["subject"], first["version"]) == ("record:n/k0@1", "record:n/k0", 1)
    assert (first["type"], first["reason"]) == ("holdlog.ValueWritten", "why: 'x'")
    assert first["data"]["payload"] == {"n": 0, "t": "ä\u0000\\u0000'"}
    assert first["data"]["body"] == {"by": "ann"}


def test_export_of_a_redacted_event_has_its_hashes_and_verifies(somewhere: Somewhere) -> None:
    source, target = somewhere("file"), somewhere("schema")
    fill(source)
    with engine(source) as store:
        redact(store, 1)
        redact(store, 1, "reason")
    line = parsed(lines := exported(source))[1]
    assert line["redacted"] is True
    assert "reason" not in line
    assert {"payload_hash", "reason_hash"} <= line["data"].keys()
    assert not {"payload", "payload_text", "salt", "reason_salt"} & line["data"].keys()
    imported(lines, target)
    require_fork(source, target)
    with engine(target) as store:
        require_chained(store)


def test_log_of_release_0_1_is_migrated_exported_and_imported(tmp_path: Path) -> None:
    source, target = lay(tmp_path / "old.db", SCHEMA_1), tmp_path / "state.db"
    lines = exported(source)
    assert "format" not in parsed(lines)[1]["data"]
    imported(lines, target)
    require_fork(source, target)
    with StateStore(target) as store:
        store.set("new", "k", 1, updated_by="ann")
    require_fork(source, target, later=1)
    assert [it for it in examine(target) if it.level == "bad"] == []


def test_import_of_a_moved_store_is_another_store(somewhere: Somewhere) -> None:
    source, target = somewhere("file"), somewhere("file")
    fill(source)
    copying.copy(source, somewhere("file"), seal=True)
    assert not imported(exported(source), target).kept_id
    require_fork(source, target)


@pytest.mark.parametrize("how", ["copy", "move", "import"])
def test_copy_keeps_the_roots_of_its_merkle_tree(
    pair: tuple[Place, Place], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("adapters.stores.copying.writing", "adapters.stores.event_log.tree", "projections.tree"):
        monkeypatch.setattr(f"holdlog.{module}.SUBTREE", 4)
    source, target = pair
    fill(source)
    if how == "import":
        imported(exported(source), target)
    else:
        copying.copy(source, target, seal=how == "move")
    faults = Faults()
    with engine(target) as store, store.snapshot() as reader:
        assert check_tree(reader, LogTree(reader, trusts_view=False), faults) == 4
        assert str(faults) == ""


@pytest.mark.parametrize("text", ["1.50", "1e5", '{"a":1,"a":2}', '"\\u00e9"', "[1, 2]", "-0", "1E400", "9" * 400])
def test_payload_is_restored_as_it_was_written(text: str, tmp_path: Path) -> None:
    with engine(tmp_path / "source.db") as store:
        run(store, transact(put("k", 1).model_copy(update={"value": Json(text)})))
    imported(exported(tmp_path / "source.db"), tmp_path / "target.db")
    with engine(tmp_path / "target.db") as store:
        assert rows(store)[0][13] == text


def test_export_is_of_one_moment_while_others_write(pair: tuple[Place, Place]) -> None:
    source, target = pair
    lines: list[bytes] = []
    with StateStore(source) as store:
        for number in range(5):
            store.set("n", f"k{number}", number, updated_by="ann")

        def write(line: bytes) -> None:
            store.set("n", f"meanwhile{len(lines)}", 1, updated_by="ann")
            lines.append(line)

        assert copying.export_log(source, write) == 5
    assert imported(lines, target).events == 5
    with StateStore(target) as store:
        assert store.get("n", "k0").value == 0


# --- damaged exports


def changed(number: int, change: Callable[[dict[str, Any]], object]) -> Callable[[Lines], Lines]:
    def apply(lines: Lines) -> Lines:
        found = json.loads(lines[number])
        change(found)
        return [*lines[:number], json.dumps(found).encode() + b"\n", *lines[number + 1 :]]

    return apply


def in_data(**fields: Any) -> Callable[[dict[str, Any]], object]:
    return lambda line: line["data"].update(fields)


DAMAGED: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "empty": (lambda it: [], "line 1: this is not a JSON object"),
    "text": (lambda it: [b"hello\n"], "line 1: this is not a JSON object"),
    "a list": (lambda it: [b"[]\n"], "line 1: this is not a JSON object"),
    "no header": (lambda it: it[1:], "is not an export of a log"),
    "values": (lambda it: [b'{"namespace":"n","key":"k"}\n'], "is not an export of a log"),
    "another major": (changed(0, in_data(version="2.0")), "has format '2.0', but this holdlog reads 1.x"),
    "no version": (changed(0, lambda line: line["data"].pop("version")), "has format 'None.', but this"),
    "no source": (changed(0, lambda line: line.pop("source")), "line 1: the header names no store"),
    "a source that is no store": (
        changed(0, lambda line: line.update(source="x")),
        "line 1: the header names no store",
    ),
    "no number of events": (changed(0, lambda line: line["data"].pop("events")), "line 1: the header names no store"),
    "a trailer of text": (changed(4, lambda line: line.update(data="x")), "line 5: the number of events or the root"),
    "without trailer": (lambda it: it[:-1], "line 4: the export was cut"),
    "only a header": (lambda it: it[:1], "line 1: the export was cut"),
    "cut in a line": (lambda it: [*it[:2], it[2][:50]], "line 3: this is not a JSON object"),
    "cut in a character": (lambda it: [*it[:2], '{"id":"ä'.encode()[:-1]], "line 3: this is not a JSON object"),
    "a line is missing": (lambda it: [*it[:2], *it[3:]], "line 3: the position of an event is 3, but must be 2"),
    "the last event is missing": (lambda it: [*it[:3], *it[4:]], "line 4: the number of events or the root"),
    "a line twice": (lambda it: [*it[:3], *it[2:]], "line 4: the position of an event is 2, but must be 3"),
    "lines swapped": (
        lambda it: [it[0], it[2], it[1], *it[3:]],
        "line 2: the position of an event is 2, but must be 1",
    ),
    "a value": (changed(2, in_data(payload=3)), "line 3: the digest of event record:n/b@1 does not verify"),
    "a salt": (changed(2, in_data(salt="00" * 16)), "line 3: the digest of event record:n/b@1 does not verify"),
    "no salt": (changed(2, lambda line: line["data"].pop("salt")), "line 3: the digest of event record:n/b@1"),
    "an author": (changed(2, in_data(body={"by": "eve"})), "line 3: the digest of event"),
    "a reason": (changed(1, lambda line: line.update(reason="x")), "line 2: the digest of event record:n/a@1"),
    "a time": (changed(3, in_data(at=1)), "line 4: the digest of event record:n/a@2"),
    "a digest": (changed(2, lambda line: line.update(digest="00" * 32)), "line 5: the number of events or the root"),
    "a root": (changed(4, in_data(root="00" * 32)), "line 5: the number of events or the root"),
    "a count": (changed(4, in_data(events=2)), "line 5: the number of events or the root"),
    "an unknown log format": (changed(2, in_data(format=3)), "line 3: event record:n/b@1 has format 3"),
    "a position that is text": (changed(1, lambda line: line.update(position="1")), "line 2: this is not an event"),
    "a version that is text": (changed(1, lambda line: line.update(version="1")), "line 2: this is not an event"),
    "a huge version": (changed(1, lambda line: line.update(version=2**70)), "line 2: this is not an event"),
    "no subject": (changed(1, lambda line: line.pop("subject")), "line 2: this is not an event"),
    "data that is text": (changed(1, lambda line: line.update(data="x")), "line 2: this is not an event"),
    "no body": (changed(1, lambda line: line["data"].pop("body")), "line 2: this is not an event"),
    "a digest that is no number": (changed(1, lambda line: line.update(digest="xy")), "line 2: this is not an event"),
    "lines after the end": (lambda it: [*it, it[2]], "line 6: this follows the end of the export"),
    "two exports": (lambda it: [*it, *it], "line 6: this follows the end of the export"),
    "compressed and cut": (lambda it: [gzip.compress(b"".join(it))[:-30]], "line 5: the compressed data is damaged"),
    "compressed and damaged": (lambda it: [_damaged(gzip.compress(b"".join(it)))], "damaged"),
    "a database": (lambda it: [b"SQLite format 3\x00", bytes(100)], "to copy a store: holdlog copy log.jsonl TO"),
}


def _damaged(packed: bytes) -> bytes:
    half = len(packed) // 2
    return packed[:half] + bytes(20) + packed[half + 20 :]


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_export_is_refused_in_one_line_and_leaves_no_store(damage: str, lines: Lines, tmp_path: Path) -> None:
    change, message = DAMAGED[damage]
    target = tmp_path / "target" / "state.db"
    target.parent.mkdir()
    with pytest.raises(StoreError) as refusal:
        imported(change(lines), target)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("damage", ["a value", "without trailer", "a root"])
def test_damaged_export_leaves_no_schema(damage: str, lines: Lines, somewhere: Somewhere) -> None:
    change, message = DAMAGED[damage]
    with pytest.raises(StoreError) as refusal:
        imported(change(lines), target := somewhere("schema"))
    assert message in str(refusal.value)
    assert not stands(target)


CRAFTED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown topic": ({"topic": "Unknown"}, "line 2: event record:n/a@1 has the unknown topic 'Unknown'"),
    "another body": ({"state": b'{"by":1}'}, "line 2: event record:n/a@1 cannot be read: its body does not match"),
    "a stream spelled differently": (
        {"originator_id": "record:n/%61"},
        "line 2: the stream 'record:n/%61' is not spelled as holdlog spells it",
    ),
    "a time after the year 9999": ({"at": 2**60}, "line 2: this is not an event as holdlog exports it"),
    "a time before the year 1": ({"at": -(2**60)}, "line 2: this is not an event as holdlog exports it"),
    "an expiry after the year 9999": (
        {"state": b'{"by":"ann","expires_at":1152921504606846976}'},
        "line 2: this is not an event as holdlog exports it",
    ),
    "a value that is no JSON": ({"payload": "NaN"}, "line 2: this is not an event as holdlog exports it"),
    "a value that is too deep": ({"payload": "[" * 9999 + "]" * 9999}, "line 2: this is not an event as"),
    "fencing conditions of another form": ({"guard": '[{"claim":1}]'}, "its fencing conditions are not JSON"),
    "a first version of 2": ({"originator_version": 2}, "line 2: event record:n/a@2 follows version 0"),
}


def line_of(event: EncodedEvent) -> bytes:
    """A line of an export, whatever the time of its event."""
    line = json.loads(format_of_exports.event_line("", event._replace(at=0)))
    line["data"]["at"] = event.at
    return json.dumps(line).encode() + b"\n"


@pytest.mark.parametrize("fields", CRAFTED)
def test_event_that_verifies_but_that_no_holdlog_writes_is_refused(fields: str, lines: Lines, tmp_path: Path) -> None:
    changes, message = CRAFTED[fields]
    event = EncodedEvent._make(format_of_exports.row_of(json.loads(lines[1])))._replace(**changes)
    event = event._replace(digest=expected_digest(event, NO_DIGEST))
    root = Frontier()
    root.add(leaf(event.digest))
    header, trailer = changed(0, in_data(events=1))(lines), changed(4, in_data(events=1, root=root.root().hex()))(lines)
    with pytest.raises(StoreError) as refusal:
        imported([header[0], line_of(event), trailer[4]], tmp_path / "target.db")
    assert message in str(refusal.value)
    assert "see holdlog doctor" not in str(refusal.value)


def test_event_that_a_database_cannot_hold_is_refused_in_one_line(lines: Lines, somewhere: Somewhere) -> None:
    with pytest.raises(StoreError, match="PostgreSQL cannot hold a row of the log") as refusal:
        imported(changed(1, lambda line: line.update(reason="a\u0000b"))(lines), target := somewhere("schema"))
    assert "\n" not in str(refusal.value)
    assert not stands(target)


def test_line_of_an_export_that_is_too_long_is_refused(
    lines: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(format_of_exports, "MAX_LINE", 600)
    with pytest.raises(StoreError, match="line 2: the line has more than 600 bytes"):
        imported([lines[0], b"x" * 1_000, *lines[2:]], tmp_path / "target.db")


@pytest.mark.parametrize("compressed", [False, True])
def test_export_may_be_reformatted_and_compressed(lines: Lines, compressed: bool, tmp_path: Path) -> None:
    text = b"".join(json.dumps(json.loads(line), sort_keys=True).encode() + b"\n" for line in lines).rstrip()
    stream = BufferedReader(BytesIO(gzip.compress(text) if compressed else text))  # type: ignore[arg-type]
    assert copying.import_log(stream, "log.jsonl", tmp_path / "target.db").events == 3


def test_export_of_a_newer_minor_with_more_attributes_is_imported(lines: Lines, tmp_path: Path) -> None:
    newer = changed(0, in_data(version="1.7", more=1))(changed(1, lambda line: line.update(more=2))(lines))
    assert imported(newer, tmp_path / "target.db").events == 3


def test_import_reports_its_progress(lines: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "REPORT_EVERY", 1)
    reported: list[tuple[int, int]] = []
    stream = BufferedReader(BytesIO(b"".join(lines)))  # type: ignore[arg-type]
    copying.import_log(stream, "log.jsonl", tmp_path / "target.db", lambda done, total: reported.append((done, total)))
    assert reported == sorted(reported)
    assert reported[-1] == (3, 3)


def test_occupied_location_is_not_imported_into(lines: Lines, pair: tuple[Place, Place]) -> None:
    target = pair[1]
    with StateStore(target) as store:
        store.set("theirs", "k", 1, updated_by="eve")
    with engine(target) as store:
        before = rows(store)
    with pytest.raises(StoreError, match="already"):
        imported(lines, target)
    with engine(target) as store:
        assert rows(store) == before
