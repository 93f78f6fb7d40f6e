"""The byte formats in docs/decisions/0004 and 0030, and the columns in docs/store.md are those of the code."""

import hashlib
import itertools
import json
import re
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.stores.copying.exported import event_line, row_of
from holdlog.adapters.stores.event_log.codec import EncodedEvent, expected_digest
from holdlog.adapters.stores.sql.tables import LEASE_COLUMNS
from holdlog.adapters.stores.sqlite.schema import CREATE_EVENTS
from holdlog.domain.claims.claim import Grant, PastHold
from holdlog.domain.claims.lease import Loss
from holdlog.domain.envelope import NO_DIGEST, Digested, digest, digest_2, payload_hash
from holdlog.domain.message import Caller
from holdlog.projections.fold import VIEWS
from tests.support.older import format_1

ROOT = Path(__file__).parents[2]
FORMAT = (ROOT / "docs/decisions/0004-envelope-and-digest.md").read_text()
FORMAT_2 = (ROOT / "docs/decisions/0030-log-format-2.md").read_text()
STORE = (ROOT / "docs/store.md").read_text()
STREAM = "record:order-1234/status"


def test_worked_example_of_format_1_matches_this_code() -> None:
    hashed = payload_hash(bytes(range(16)), '"paid"')
    first = digest(
        NO_DIGEST,
        STREAM,
        1,
        "ValueWritten",
        1763640000000000,
        Caller(session="p-1", reason="Zahlung geprüft"),
        '{"by":"ann"}',
        hashed,
    )
    second = digest(first, STREAM, 2, "ValueDeleted", 1763640060000000, Caller(session="p-1"), '{"by":"bob"}', None)
    assert documented(FORMAT) == {
        "payload hash of version 1": hashed.hex(),
        "digest of version 1": first.hex(),
        "digest of version 2": second.hex(),
    }


def test_documented_event_of_an_export_is_read_and_verifies() -> None:
    block = STORE.partition("<!-- exported event -->")[2].partition("```json")[2].partition("```")[0]
    found = json.loads(block)
    row = row_of(found)
    assert expected_digest(row, NO_DIGEST) == row[11]
    assert json.loads(event_line(found["source"], EncodedEvent._make(row))) == found


def test_worked_example_of_format_2_matches_this_code() -> None:
    payload = payload_hash(bytes(range(16)), '"paid"').hex()
    reason = payload_hash(bytes(range(16, 32)), "Zahlung geprüft").hex()
    written = Digested(
        STREAM, 1, "ValueWritten", 1763640000000000, None, None, "p-1", None, None, "set", 0, None, None,
        '{"by":"ann"}', payload, reason,
    )  # fmt: skip
    first = digest_2(NO_DIGEST, written)
    deleted = Digested(
        STREAM, 2, "ValueDeleted", 1763640060000000, 1763636460000000, "token:ci", "p-1", None, None, "delete", 1,
        None, '[{"resource":"src/a.py","version":3}]', '{"by":"bob"}', None, None,
    )  # fmt: skip
    assert documented(FORMAT_2) == {
        "payload hash of version 1": payload,
        "reason hash of version 1": reason,
        "digest of version 1": first.hex(),
        "digest of version 2": digest_2(first, deleted).hex(),
    }


@pytest.mark.parametrize("document", [FORMAT, FORMAT_2], ids=["1", "2"])
def test_worked_example_is_reproduced_without_this_code(document: str) -> None:
    first, second = after("<!-- example -->", document).splitlines()
    hashes = documented(document)
    assert hashlib.sha256(bytes(range(16)) + b'"paid"').hexdigest() == hashes["payload hash of version 1"]
    assert hashlib.sha256(first.encode()).hexdigest() == hashes["digest of version 1"]
    assert hashes["digest of version 1"] in json.loads(second)[:2]
    assert hashlib.sha256(second.encode()).hexdigest() == hashes["digest of version 2"]


def test_auditors_script_verifies_a_store(store_of_0_1: Path) -> None:
    assert audit(FORMAT)(str(store_of_0_1)) == 7


def test_auditors_script_of_format_2_verifies_stores_of_both_formats(
    store: Path, store_of_0_1: Path, mixed_store: Path
) -> None:
    assert audit(FORMAT_2)(str(store)) == 7
    assert audit(FORMAT_2)(str(store_of_0_1)) == 7
    assert audit(FORMAT_2)(str(mixed_store)) == 14


TAMPERINGS = [
    "UPDATE stored_events SET payload = '\"unpaid\"' WHERE rowid = 1",
    "UPDATE stored_events SET at = at + 1 WHERE rowid = 2",
    "UPDATE stored_events SET session = NULL WHERE rowid = 2",
    "UPDATE stored_events SET salt = zeroblob(16) WHERE rowid = 1",
    "UPDATE stored_events SET reason = 'x' WHERE rowid = 1",
    "UPDATE stored_events SET based_on = 5 WHERE rowid = 3",
    "DELETE FROM stored_events WHERE rowid = 2",
]


@pytest.mark.parametrize("tampering", [it for it in TAMPERINGS if "based_on" not in it])
def test_auditors_script_finds_changed_columns(store_of_0_1: Path, tampering: str) -> None:
    execute(store_of_0_1, tampering)
    with pytest.raises(SystemExit):
        audit(FORMAT)(str(store_of_0_1))


@pytest.mark.parametrize("tampering", TAMPERINGS)
@pytest.mark.parametrize("of", ["store", "store_of_0_1"])
def test_auditors_script_of_format_2_finds_changed_columns(
    request: pytest.FixtureRequest, of: str, tampering: str
) -> None:
    path = request.getfixturevalue(of)
    execute(path, tampering)
    with pytest.raises(SystemExit):
        audit(FORMAT_2)(str(path))


@pytest.mark.parametrize("document", [FORMAT, FORMAT_2], ids=["1", "2"])
def test_auditors_script_finds_a_forged_value_next_to_the_true_hash(store_of_0_1: Path, document: str) -> None:
    redact(store_of_0_1, "payload", "salt", forged='"forged"')
    with pytest.raises(SystemExit):
        audit(document)(str(store_of_0_1))


@pytest.mark.parametrize("document", [FORMAT, FORMAT_2], ids=["1", "2"])
def test_auditors_script_accepts_a_redacted_payload(store_of_0_1: Path, document: str) -> None:
    redact(store_of_0_1, "payload", "salt")
    assert audit(document)(str(store_of_0_1)) == 7


def test_auditors_script_of_format_2_accepts_redacted_texts(store: Path) -> None:
    redact(store, "payload", "salt")
    redact(store, "reason", "reason_salt")
    assert audit(FORMAT_2)(str(store)) == 7


def test_documented_columns_of_the_views_are_the_actual_ones() -> None:
    assert VIEWS
    for view in VIEWS:
        table = STORE.split(f"**`{view.name}`**")[1].split("**`")[0]
        assert columns_of(table) == list(view.columns)


@pytest.mark.parametrize(("name", "columns"), [("leases", LEASE_COLUMNS), ("losses", Loss._fields)])
def test_documented_columns_of_leases_are_the_actual_ones(store: Path, name: str, columns: tuple[str, ...]) -> None:
    connection = sqlite3.connect(store)
    there = [column[1] for column in connection.execute(f"PRAGMA table_info({name})")]
    connection.close()
    assert columns_of(STORE.split(f"**`{name}`**")[1].split("**`")[0]) == there == list(columns)


def test_documented_parts_of_a_claim_are_the_actual_ones() -> None:
    for part in (Grant, PastHold):
        assert f"`[{', '.join(part._fields)}]`" in STORE


def test_hook_can_detect_a_live_claim_with_nothing_but_sqlite(store: Path) -> None:
    """As docs/store.md says it: the deadline lies ahead on this machine's clock, in this boot."""
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    boot = connection.execute("SELECT value FROM meta WHERE name = 'boot_id'").fetchone()[0]
    assert boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    [(resource, kind, agent, deadline)] = connection.execute("SELECT resource, kind, agent, deadline FROM leases")
    connection.close()
    assert (resource, kind, agent) == ("custom://merge", "held", "日本")
    left = deadline / 1e6 - time.clock_gettime(time.CLOCK_MONOTONIC)
    assert 200 < left <= 300


def test_documented_columns_of_the_log_are_the_actual_ones() -> None:
    tables = [it.split("## The row")[1].split("## The digest")[0] for it in (FORMAT, FORMAT_2)]
    assert columns_of("".join(tables)) == re.findall(r"^    ([a-z_]+) [A-Z]", CREATE_EVENTS, re.MULTILINE)


def test_every_document_that_the_code_names_exists() -> None:
    files = {folder: sorted((ROOT / folder).rglob("*.py")) for folder in ("domain", "projections", "adapters")}
    assert all(files.values())
    named = [
        (path, name)
        for path in itertools.chain(*files.values())
        for name in re.findall(r"docs/[\w/-]+\.md", path.read_text())
    ]
    assert named
    for path, name in named:
        assert (ROOT / name).exists(), f"{path.name} names {name}"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "state.db"
    seven_events(path)
    return path


@pytest.fixture
def store_of_0_1(tmp_path: Path) -> Path:
    path = tmp_path / "older.db"
    with format_1():
        seven_events(path)
    return path


@pytest.fixture
def mixed_store(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.db"
    with format_1():
        seven_events(path)
    with StateStore(path) as engine:
        engine.release("custom://merge", agent="日本")
        engine.delete("order 1/ä", "status", deleted_by="bob", expected_version=4)
    seven_events(path, "r2", until=5)
    return path


def seven_events(path: Path, request_id: str = "r1", until: int = 7) -> None:
    with StateStore(path) as engine:
        engine.set("order 1/ä", "status", "paid", updated_by="ann", reason='she said "ok"\n'.strip())
        engine.set("order 1/ä", "status", {"état": "\u007f\u2028\\", "n": 1.5}, updated_by="bob", request_id=request_id)
        version = engine.get("order 1/ä", "status").version
        engine.delete("order 1/ä", "status", deleted_by="bob", expected_version=version)
        engine.set("order 1/ä", "status", None, updated_by="ann", expected_version=0)
        engine.claim("custom://merge", agent="ann")
        if until > 5:
            engine.release("custom://merge", agent="ann")
            engine.claim("custom://merge", agent="日本")


def redact(path: Path, column: str, salted: str, forged: str | None = None) -> None:
    """Of the first event: take a text out, or put another in its place, next to the hash of the true one."""
    connection = sqlite3.connect(path)
    salt, text = connection.execute(f"SELECT {salted}, {column} FROM stored_events WHERE rowid = 1").fetchone()
    connection.execute(
        f"UPDATE stored_events SET {salted} = ?, {column} = ?, {column}_hash = ? WHERE rowid = 1",
        (None if forged is None else salt, forged, payload_hash(salt, text)),
    )
    connection.commit()
    connection.close()


def audit(document: str) -> Any:
    names: dict[str, Any] = {}
    exec(compile(after("<!-- audit -->", document), "audit", "exec"), names)
    return names["audit"]


def after(marker: str, document: str) -> str:
    return document.split(marker)[1].split("```")[1].split("\n", 1)[1].rstrip("\n")


def documented(document: str) -> dict[str, str]:
    """The hashes of the worked example."""
    row = r"^\| ((?:payload hash|reason hash|digest) of version \d) \| `([0-9a-f]{64})` \|$"
    return dict(re.findall(row, document, re.MULTILINE))


def columns_of(table: str) -> list[str]:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, re.MULTILINE)
    return [column for row in rows for column in re.findall(r"`(\w+)`", row)]


def execute(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
