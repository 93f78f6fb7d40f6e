"""The page for people: its headers, what its script may call, its functions, and in a browser what it shows."""

import json
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.http.openapi import describe_api
from tests.support.programs import HttpServer, run

pytestmark = pytest.mark.xdist_group("test_page")
PAGE = Path(__file__).parents[1] / "adapters" / "http" / "page.html"
TEXT = PAGE.read_text("utf-8")
SCRIPT = TEXT.partition("<script>")[2].partition("</script>")[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """With tokens: one that may read all, and one for the namespace plan."""
    folder = tmp_path_factory.mktemp("page")
    server = HttpServer(folder / "state.db", cwd=folder)
    yield server
    server.close()


# --- the response


def test_page_may_run_only_its_own_script_and_style(server: HttpServer) -> None:
    page = server.request("GET", "/")
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    for name in ("script", "style"):
        parts = re.findall(rf"<{name}[^>]*>(.*?)</{name}>", page.text, re.DOTALL)
        digests = [b64encode(sha256(part.encode()).digest()).decode() for part in parts]
        assert [policy.pop(f"{name}-src")] == [f"'sha256-{it}'" for it in digests]
    assert policy == {
        "default-src": "'none'",
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"


def test_page_names_no_other_host() -> None:
    assert set(
        re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s'\"]*", re.sub(r"^\s*//.*$", "", TEXT, flags=re.MULTILINE))
    ) == {
        "http://www.w3.org/2000/svg"  # the name of a format
    }
    assert re.findall(r"<(?:link|img|script|iframe)[^>]*(?:src|href)=(?!\"data:)", TEXT) == []


def test_script_has_no_means_to_make_elements_or_code_of_texts() -> None:
    means = (
        r"innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser|srcdoc|eval\(|new Function|setHTML|createContext"
    )
    assert re.findall(means, SCRIPT) == []
    assert re.findall(r"<[a-z][^>]*\s(?:on\w+|style)=", TEXT.replace(SCRIPT, "")) == []


def test_script_calls_routes_that_exist() -> None:
    paths = {re.sub(r"\{\w+\}", "*", path): kinds for path, kinds in describe_api()["paths"].items()}
    calls = re.findall(r"""(?:ask|send)\([`"](v1/[^`"]*)[`"]""", SCRIPT)
    assert len(calls) >= 8
    assert [call for call in calls if "get" not in paths.get("/" + re.sub(r"\$\{[^}]*\}", "*", call), {})] == []


def test_page_needs_no_token_and_its_data_do(tmp_path: Path) -> None:
    token = create_token(tmp_path, "viewer", "read:*")
    server = HttpServer(tmp_path / "state.db", cwd=tmp_path)
    try:
        assert server.request("GET", "/").text == TEXT
        for path in ("/v1/values", "/v1/claims", "/v1/log", "/v1/events"):
            assert server.request("GET", path).status_code == 401
            assert server.request("GET", path, headers={"authorization": f"Bearer {token}"}).status_code == 200
    finally:
        server.close()


def create_token(folder: Path, name: str, *allow: str) -> str:
    words = [word for grant in allow for word in ("--allow", grant)]
    done = run("token", "create", "--name", name, *words, "--db", folder / "state.db")
    assert done.code == 0, done
    return done.out.strip()


# --- the route of the log, which the page needs for refusals


def test_log_over_http_has_refusals_among_its_events(server: HttpServer) -> None:
    write = {"value": 1, "updated_by": "ann", "expected_version": 0}
    assert server.request("PUT", "/v1/values/log/k", json=write).status_code == 200
    assert server.request("PUT", "/v1/values/log/k", json=write | {"updated_by": "bob"}).status_code == 409
    assert server.request("PUT", "/v1/values/log/other", json=write).status_code == 200
    page = server.request("GET", "/v1/log", params={"namespace": "log", "refusals": "true"}).json()
    found = [(it.get("kind"), it.get("code"), it["by"], it["key"]) for it in page["entries"]]
    assert found == [
        ("ValueWritten", None, "ann", "k"),
        (None, "conflict", "bob", "k"),
        ("ValueWritten", None, "ann", "other"),
    ]


def test_log_shows_a_token_only_the_names_that_it_may_read(tmp_path: Path) -> None:
    everything, narrow = create_token(tmp_path, "all", "admin:*"), create_token(tmp_path, "narrow", "read:plan")
    server = HttpServer(tmp_path / "state.db", cwd=tmp_path)

    def ask(token: str, method: str, path: str, **options: Any) -> Any:
        return server.request(method, path, headers={"authorization": f"Bearer {token}"}, **options)

    try:
        for namespace in ("plan", "secret"):
            for version in (0, 7):
                write = {"value": namespace, "updated_by": "ann", "expected_version": version}
                ask(everything, "PUT", f"/v1/values/{namespace}/k", json=write)
        message = {"type": "text", "role": "user", "content": "secret"}
        for path, body in (("claims/custom:%2F%2Fsecret", {}), ("threads/secret", {"messages": [message]})):
            done = ask(everything, "POST", f"/v1/{path}", json={"agent": "ann"} | body)
            assert done.status_code == 200, done.text
        parameters = {"refusals": "true", "limit": 1000}
        page = ask(narrow, "GET", "/v1/log", params=parameters).json()
        assert [(it["namespace"], it.get("kind", "refusal")) for it in page["entries"]] == [
            ("plan", "ValueWritten"),
            ("plan", "refusal"),
        ]
        assert "secret" not in json.dumps(page)
        assert "secret" in json.dumps(ask(everything, "GET", "/v1/log", params=parameters).json())
        assert ask(narrow, "GET", "/v1/log", params={"namespace": "secret"}).status_code == 403
    finally:
        server.close()


# --- functions of the script


@pytest.fixture(scope="module")
def node() -> str:
    path = shutil.which("node")
    if path is None:
        pytest.skip("node is not installed: the functions of the page's script were not run")
    return path


def evaluate(node: str, expression: str) -> Any:
    done = subprocess.run(
        [node, "-e", f"{SCRIPT}\nconsole.log(JSON.stringify({expression}))"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


GRANTED = {"kind": "ClaimGranted", "resource": "a", "version": 1, "by": "ann", "mode": "exclusive"}


@pytest.mark.parametrize(
    ("end", "how", "is_bad"),
    [
        ({"kind": "ClaimReleased", "grant": 1, "outcome": "modified"}, "modified", False),
        ({"kind": "ClaimReleased", "grant": 1, "outcome": "released", "forced_by": "eve"}, "taken away by eve", True),
        ({"kind": "ClaimExpired", "grant": 1, "due": "2026-01-01T00:00:09+00:00"}, "expired", True),
        ({"kind": "OfferExpired", "grant": 1}, "not collected", True),
        ({**GRANTED, "version": 2, "instead_of": 1, "mode": "shared"}, "replaced", False),
    ],
)
def test_claims_become_intervals_that_end_as_the_log_says(node: str, end: Any, how: str, is_bad: bool) -> None:
    events = [
        GRANTED | {"at": "2026-01-01T00:00:01+00:00"},
        {"resource": "a", "version": 2, "by": "ann", "at": "2026-01-01T00:00:09+00:00"} | end,
    ]
    first, *_ = evaluate(node, f"findHolds([], {json.dumps(events)})")
    assert (first["to"] - first["from"], first["how"], first["isBad"]) == (8000, how, is_bad)


def test_a_place_in_a_queue_ends_when_its_claim_is_granted(node: str) -> None:
    events = [
        {"kind": "ClaimQueued", "resource": "a", "version": 4, "by": "bob", "at": "2026-01-01T00:00:01+00:00"},
        GRANTED | {"version": 6, "ticket": 4, "by": "bob", "at": "2026-01-01T00:00:05+00:00"},
    ]
    waits, holds = evaluate(node, f"findHolds([], {json.dumps(events)})")
    assert (waits["isWaiting"], waits["to"], waits["how"]) == (True, holds["from"], "granted")
    assert "to" not in holds


def test_claims_held_before_the_events_are_intervals_too(node: str) -> None:
    claim = {
        "resource": "a",
        "version": 1,
        "held_by": "ann",
        "mode": "shared",
        "claimed_at": "2026-01-01T00:00:00+00:00",
    }
    end = {
        "kind": "ClaimReleased",
        "resource": "a",
        "grant": 1,
        "outcome": "released",
        "at": "2026-01-01T00:01:00+00:00",
    }
    (hold,) = evaluate(node, f"findHolds({json.dumps([claim])}, {json.dumps([end])})")
    assert (hold["agent"], hold["to"] - hold["from"]) == ("ann", 60_000)


def test_intervals_that_overlap_have_rows_of_their_own(node: str) -> None:
    holds = [{"from": 0, "to": 5}, {"from": 3, "to": 9}, {"from": 5, "to": 6}, {"from": 6}]
    program = (
        f"(() => {{ const holds = {json.dumps(holds)}; return [arrange(holds, 10), ...holds.map((it) => it.row)]; }})()"
    )
    assert evaluate(node, program) == [2, 0, 1, 0, 0]


def test_agents_have_colours_of_their_own_and_share_them_with_sub_agents(node: str) -> None:
    names = [f"agent-{number}" for number in range(12)]
    program = (
        f"(() => {{ const hue = makePalette(); return [{json.dumps(names)}.map((it) => hue(it)), hue('agent-3/tests'),"
        " hue('agent-3', 'token-1')]; })()"
    )
    hues, sub_agent, other_principal = evaluate(node, program)
    assert len(set(hues)) == 12
    assert sub_agent == hues[3]
    assert other_principal not in hues


def test_characters_that_cannot_be_seen_are_shown_as_codes(node: str) -> None:
    assert evaluate(node, r"reveal('a\u202egnp\u0000\u200b é☃')") == r"a\u{202e}gnp\u{0}\u{200b} é☃"
    assert evaluate(node, "clip('x'.repeat(400)).length") == 302


def test_edit_shows_the_lines_that_it_removed_and_added(node: str) -> None:
    assert evaluate(node, r"compareLines('a\nb\nc', 'a\nx\nc\nd')") == [
        [" ", "a"],
        ["-", "b"],
        ["+", "x"],
        [" ", "c"],
        ["+", "d"],
    ]


def test_times_are_in_utc_with_24_hours(node: str) -> None:
    assert evaluate(node, "stamp(Date.parse('2026-01-02T23:04:05+09:00'))") == "2026-01-02 14:04:05 UTC"
    assert "toLocaleTime" not in SCRIPT
    assert "toLocaleDate" not in SCRIPT
    assert [evaluate(node, f"describeSpan({it})") for it in (59, 61, 7260, 90_000)] == [
        "59 s",
        "1 min 1 s",
        "2 h 1 min",
        "1 d 1 h",
    ]
