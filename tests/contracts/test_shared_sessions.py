"""A session that several processes share, as one host does that starts several servers: it lives as long as any."""

from pathlib import Path

import pytest

from holdlog import StateStore


@pytest.fixture(params=["file", "database"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    return tmp_path / "state.db" if request.param == "file" else request.getfixturevalue("postgres")


def test_a_session_lives_as_long_as_any_of_its_processes(place: Path | str) -> None:
    first, second = StateStore(place, session="job"), StateStore(place, session="job")
    with first, second, StateStore(place, session="other") as other:
        second.claim("custom://mine", agent="x")
        first.claim("custom://r", agent="x")
        first.close()
        assert other.claim("custom://r", agent="x").status == "busy"
        assert second.claim("custom://r", agent="x").status == "already_claimed"
        second.close()
        resumed = other.claim("custom://r", agent="x")
        assert (resumed.status, resumed.body()["resumed"]) == ("claimed", True)


def test_the_library_reports_a_lost_claim_once(place: Path | str) -> None:
    with StateStore(place) as mine:
        mine.claim("custom://r", agent="x")
        engine = mine._engine
        engine.write(engine.requests.claims.release("custom://r", "boss", note="off duty", forced=True), engine.caller)
        lost = mine.status("custom://r").lost
        assert lost is not None
        assert [(it.resource, it.why, it.reason) for it in lost] == [("custom://r", "forced", "off duty")]
        assert mine.claim("custom://r", agent="x").lost is None


def test_a_process_keeps_its_named_session_alive_from_the_moment_it_opens_the_store(place: Path | str) -> None:
    with StateStore(place, session="job"), StateStore(place, session="other") as other:
        with StateStore(place, session="job") as short:
            short.claim("custom://r", agent="x")
        assert other.claim("custom://r", agent="x").status == "busy"
