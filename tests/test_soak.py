"""The rules of `bench soak` find what they are for. The soak itself runs for an hour, outside the tests."""

from pathlib import Path
from typing import Any

import holdlog
from bench.soak import check, find_overlaps
from tests.support.soundness import log_of


def test_check_of_a_soak_finds_lost_writes_and_lost_doubled_and_disordered_events(db: Path) -> None:
    with holdlog.StateStore(db) as store:
        for value in ("a", "b", "c"):
            store.set("soak", "key-0", value, updated_by="ann")
        digest = store.verify().digest
    journal = [
        {"stream": "record:soak/key-0", "version": version, "value": "abc"[version - 1]} for version in (1, 2, 3)
    ]
    delivered: list[Any] = [{"position": position, "digest": digest} for position in (1, 2, 3)]
    assert [rule for rule, found in check(str(db), journal, delivered).items() if found] == []
    lost = {"stream": "record:soak/key-0", "version": 4, "value": "d"}
    notes = [*journal, lost, {"violation": "lane-1"}, {"unexpected": "x"}, {"edited": "src/a.py"}]
    broken = check(str(db), notes, [delivered[2], delivered[0], delivered[0]])
    assert {rule: found for rule, found in broken.items() if found} == {
        "acknowledged writes that the log lacks": [lost],
        "edits of files that nobody claimed": [{"edited": "src/a.py"}],
        "two living agents in one block": [{"violation": "lane-1"}],
        "unexpected responses": [{"unexpected": "x"}],
        "positions that NATS lost or doubled": [1, 2],
        "positions that NATS delivered out of order": [1, 1],
    }


def test_second_grant_without_the_end_of_the_first_is_an_overlap(db: Path) -> None:
    with holdlog.StateStore(db) as store:
        for agent in ("ann", "bob"):
            store.claim("custom://lane", agent=agent)
            store.release("custom://lane", agent=agent)
        log = log_of(store)
    assert list(find_overlaps(log)) == []
    second = next(it for it in log if it.kind == "ClaimGranted" and it.by == "bob")
    without_release = [it for it in log if not (it.kind == "ClaimReleased" and it.by == "ann")]
    assert list(find_overlaps(without_release)) == [second]
