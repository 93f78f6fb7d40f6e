"""Claims to look at over HTTP."""

import pytest

from holdlog.domain.message import NOBODY
from tests.support.curl import Curl


def claim(curl: Curl, resource: str, agent: str) -> None:
    curl.store.claim(curl.store.requests.claims.claim(resource, agent), NOBODY)


async def test_board_over_http_has_pages_and_a_filter_by_agent(curl: Curl) -> None:
    for resource, agent in (("a.py", "ann"), ("b.py", "ben"), ("c.py", "ann/tests")):
        claim(curl, resource, agent)
    board = (await curl.get("/claims")).json()
    assert board["status"] == "ok"
    assert [(it["resource"], it["held_by"]) for it in board["claims"]] == [
        ("a.py", "ann"),
        ("b.py", "ben"),
        ("c.py", "ann/tests"),
    ]
    assert [it["agent"] for it in board["agents"]] == ["ann", "ann/tests", "ben"]
    first = (await curl.get("/claims?limit=2")).json()
    assert ([it["resource"] for it in first["claims"]], first["next_after"]) == (["a.py", "b.py"], "b.py")
    rest = (await curl.get("/claims?after=b.py")).json()
    assert [it["resource"] for it in rest["claims"]] == ["c.py"]
    of_ann = (await curl.get("/claims?agent=ann")).json()
    assert [it["resource"] for it in of_ann["claims"]] == ["a.py", "c.py"]


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("src/a.py", "src/a.py"),
        ("src%2Fa.py", "src/a.py"),
        ("./src//a.py", "src/a.py"),
        ("custom%3A%2F%2Fdeploy", "custom://deploy"),
        ("file://main/x", "file://main/x"),
        ("a%2520b", "a%20b"),
    ],
)
async def test_holder_of_a_resource_is_found_by_any_spelling_of_its_url(curl: Curl, path: str, resource: str) -> None:
    assert (await curl.get(f"/claims/{path}")).json() == {"status": "available", "resource": resource}
    claim(curl, resource, "ann")
    held = (await curl.get(f"/claims/{path}?version=1")).json()
    assert (held["status"], held["held_by"], held["current"]) == ("claimed", "ann", True)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/claims/", 400),
        ("/claims/a/%2E%2E/b", 400),
        ("/claims/%00", 400),
        ("/claims/%0a", 400),
        ("/claims/%ff", 400),
        ("/claims/%", 400),
        ("/claims/a?version=-1", 400),
        ("/claims/a?agent=ann", 400),
        ("/claims?version=1", 400),
        ("/claims?limit=1001", 400),
        ("/claims?agent=", 400),
    ],
)
async def test_invalid_resource_in_a_url_is_refused(curl: Curl, path: str, status: int) -> None:
    refused = await curl.get(path)
    assert (refused.status_code, refused.json()["status"]) == (status, "error")


async def test_claims_over_the_key_value_api_are_read_only(curl: Curl) -> None:
    for path in ("/claims", "/claims/a.py"):
        refused = await curl.post(path)
        assert (refused.status_code, sorted(refused.headers["allow"].split(", "))) == (405, ["GET", "HEAD"])


async def test_board_rows_mark_names_that_mix_scripts(curl: Curl) -> None:
    for resource, agent in (
        ("a.py", "ann"),
        ("b.py", "\u0430nn"),
        ("custom://m\u0435rge", "ben"),
        ("документ.py", "анна"),
    ):
        claim(curl, resource, agent)
    board = (await curl.get("/claims")).json()
    assert {it["resource"]: it.get("mixed_scripts") for it in board["claims"]} == {
        "a.py": None,
        "b.py": True,
        "custom://m\u0435rge": True,
        "документ.py": None,
    }
    assert [it["agent"] for it in board["agents"] if it.get("mixed_scripts")] == ["\u0430nn"]
    assert (await curl.get("/claims/b.py")).json()["mixed_scripts"] is True
    events = (await curl.get("/events")).json()["events"]
    assert [it["resource"] for it in events if it.get("mixed_scripts")] == ["b.py", "custom://m\u0435rge"]
