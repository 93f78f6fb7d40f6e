"""Full disks and I/O errors: the answer names the cause, nothing acknowledged is lost, and the process writes on."""

from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from tests.processes.conftest import Start
from tests.support.processes.soundness import require_acknowledged, require_sound, versions
from tests.support.processes.strace import STRACE, Strace
from tests.support.slow import check

CAUSES = ("disk", "I/O error", "No space left", "Input/output error", "cannot be locked")

QUIET = 15
"""Strikes in a row that hit nothing that matters: there are no more calls to strike."""


def require_honest(path: Path, said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every failure is a refusal that names its cause; what was refused without doubt is not in the log."""
    for call in said:
        outcome = call.get("closing", call)
        assert "raw" not in outcome, outcome
        if "error" in outcome or "opening" in outcome:
            assert outcome.get("error", outcome.get("opening")) == "UnavailableError", outcome
            assert any(cause in outcome["message"] for cause in CAUSES), outcome
            assert "\n" not in outcome["message"]
    refused = [call for call in said if "error" in call]
    log = versions(path).values()
    for call in refused:
        assert call["in_doubt"] or call["value"] not in log, call
    return refused


@pytest.mark.check
@STRACE
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("call", ["fdatasync", *check("pwrite64", "ftruncate", "flock")])
def test_one_failing_system_call_is_one_accurate_refusal(path: Path, start: Start, call: str, error: str) -> None:
    faults = Strace(start, path, call, f"error={error}")
    struck = quiet = 0
    for number in faults.numbers():
        said, status = faults.strike(number)
        assert status == 0
        refused = require_honest(path, said)
        assert len(refused) <= 1, "the writes after the fault go well"
        struck += bool(refused)
        doubtful = [write for write in refused if write["in_doubt"]]
        assert all("SYNC" in write["message"] for write in doubtful)
        if call == "fdatasync":
            assert doubtful == refused
        require_acknowledged(path, [write for write in said if "version" in write])
        failed = any("error" in line or "opening" in line for line in said)
        quiet = 0 if failed else quiet + 1
        if quiet == QUIET:
            break
    require_sound(path)
    assert struck or call == "ftruncate", "the faults did not strike a write"


READS = 60
"""More reads of the file than opening, three writes, three reads and closing take."""


@pytest.mark.check
@STRACE
def test_one_failing_read_of_the_file_is_never_reported_as_damage(path: Path, start: Start) -> None:
    with StateStore(path) as store:
        for number in range(50):
            store.set("n", f"key {number}", "x" * 500, updated_by="test")
    faults = Strace(start, path, "pread64", "error=EIO")
    messages = []
    for number in range(1, READS):
        said, status = faults.strike(number)
        assert status == 0
        calls = [line.get("read") or line.get("closing") or line for line in said]
        refused = [call for call in calls if "error" in call or "opening" in call]
        assert len(refused) <= 1, (number, [it["message"] for it in refused])
        for call in refused:
            assert call.get("error", call.get("opening")) == "UnavailableError", call
            messages.append(call["message"])
        require_acknowledged(path, [write for write in said if "version" in write])
    assert any("a second check found no damage" in message for message in messages), "no read of SQLite was struck"
    assert not any("backup" in message for message in messages)
    require_sound(path)


@pytest.mark.check
@pytest.mark.parametrize("free", [0, 100, 3000, 9000, 30000])
def test_file_that_may_not_grow_is_reported_and_writes_resume_when_it_may(path: Path, start: Start, free: int) -> None:
    said = start("limited", path, free).rest()
    refused = require_honest(path, [call for call in said if "read" not in call])
    assert len(refused) == 1
    assert not refused[0]["in_doubt"]
    assert "error" not in next(call["read"] for call in said if "read" in call)
    require_acknowledged(path, [write for write in said if "version" in write])
    assert versions(path)["after", 1] == 1
    require_sound(path)


@pytest.mark.check
@STRACE
def test_a_write_in_doubt_is_resolved_by_its_request_id(path: Path, start: Start) -> None:
    StateStore(path).close()
    faults = Strace(start, path, "fdatasync", "error=EIO")
    doubtful = 0
    for number in range(1, 12):
        said, _ = faults.strike(number)
        for write in said:
            if write.get("in_doubt"):
                doubtful += 1
                with StateStore(path) as store:
                    again = store.set("n", "k", write["value"], updated_by="worker", request_id=write["request_id"])
                    history = [past.version for past in store.history("n", "k") if past.value == write["value"]]
                assert history == [again.version]
    assert doubtful
