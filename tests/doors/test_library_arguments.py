"""Bad arguments of the library are refused by the argument's name, and nothing is stored."""

import subprocess
import sys

import pytest

import holdlog

NAN = float("nan")
BAD_NAMES = ["", " ", " a", "a ", "a\0", "a\nb", "\u202e", "\u200bx", "\ud800", "x" * 513, None, 7, b"a"]
BAD_AGENTS = [*BAD_NAMES, "x" * 129, "a\u00a0b", "\u3164"]
BAD_LABELS = ["", " a", "a\n", "\ud800", "x" * 129, 5, ["x"], b"a"]
BAD_PLACES = ["abc", "", -1, "-1", 1.5, "1.5", 2**63, 2**70, True, None, [1], "\u0663", "1." + "x" * 16]
BAD_VERSIONS = [-1, 1.5, True, 2**63, "x", [1]]
BAD_SECONDS = [-1, NAN, float("inf"), True, "x", [1]]
DEEP = 101


@pytest.fixture
def store():
    with holdlog.StateStore(":memory:") as store:
        yield store


def deep(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


NAMED = [
    ("namespace", BAD_NAMES, lambda store, bad: store.set(bad, "k", 1, updated_by="ann")),
    ("namespace", BAD_NAMES, lambda store, bad: store.get(bad, "k")),
    ("namespace", BAD_NAMES, lambda store, bad: store.clear_namespace(bad, deleted_by="ann")),
    ("namespace", BAD_NAMES, lambda store, bad: store.export_namespace(bad)),
    ("key", BAD_NAMES, lambda store, bad: store.set("n", bad, 1, updated_by="ann")),
    ("key", BAD_NAMES, lambda store, bad: store.history("n", bad)),
    ("key", BAD_NAMES, lambda store, bad: store.watch("n", bad, 0)),
    ("updated_by", BAD_AGENTS, lambda store, bad: store.set("n", "k", 1, updated_by=bad)),
    ("deleted_by", BAD_AGENTS, lambda store, bad: store.delete("n", "k", deleted_by=bad)),
    ("agent", BAD_AGENTS, lambda store, bad: store.claim("a.py", agent=bad)),
    ("agent", BAD_AGENTS, lambda store, bad: store.release("a.py", agent=bad)),
    ("resource", BAD_NAMES, lambda store, bad: store.claim(bad, agent="ann")),
    ("resource", BAD_NAMES[:-3], lambda store, bad: store.wait(bad)),
    ("expected_version", BAD_VERSIONS, lambda store, bad: store.set("n", "k", 1, updated_by="a", expected_version=bad)),
    ("expected_version", BAD_VERSIONS, lambda store, bad: store.delete("n", "k", deleted_by="a", expected_version=bad)),
    ("since_version", BAD_VERSIONS, lambda store, bad: store.watch("n", "k", bad)),
    ("limit", [0, -1, 1001, 2**70, 1.5, "x", True], lambda store, bad: store.history("n", "k", limit=bad)),
    ("timeout_seconds", BAD_SECONDS, lambda store, bad: store.watch("n", "k", 0, timeout_seconds=bad)),
    ("timeout_seconds", BAD_SECONDS, lambda store, bad: store.wait("a.py", timeout_seconds=bad)),
    ("ttl_seconds", [0, *BAD_SECONDS], lambda store, bad: store.set("n", "k", 1, updated_by="ann", ttl_seconds=bad)),
    ("lease_seconds", [0, *BAD_SECONDS], lambda store, bad: store.claim("a.py", agent="ann", lease_seconds=bad)),
    ("mode", ["x", 1], lambda store, bad: store.claim("a.py", agent="ann", mode=bad)),
    ("outcome", ["x", 1], lambda store, bad: store.release("a.py", agent="ann", outcome=bad)),
    ("note", ["x" * 501, "\ud800"], lambda store, bad: store.claim("a.py", agent="ann", note=bad)),
    ("reason", ["x" * 501, "\ud800"], lambda store, bad: store.set("n", "k", 1, updated_by="ann", reason=bad)),
    (
        "guard",
        [["x"], [{}], [{"resource": "a.py"}]],
        lambda store, bad: store.set("n", "k", 1, updated_by="a", guard=bad),
    ),
    (
        "value",
        [NAN, float("-inf"), "\ud800", b"x", {1: 2}, object(), {"a": {1}}, deep(DEEP), "x" * 262_143],
        lambda store, bad: store.set("n", "k", bad, updated_by="ann"),
    ),
    ("after", BAD_PLACES, lambda store, bad: store.events(bad)),
    ("request_id", BAD_LABELS, lambda store, bad: store.set("n", "k", 1, updated_by="ann", request_id=bad)),
]


@pytest.mark.parametrize(("argument", "values", "call"), NAMED, ids=[f"{it[0]}{n}" for n, it in enumerate(NAMED)])
def test_bad_argument_is_refused_by_its_name_and_stores_nothing(store, argument, values, call):
    for bad in values:
        with pytest.raises(holdlog.InvalidError) as refused:
            call(store, bad)
        assert argument in str(refused.value), (bad, str(refused.value))
        assert len(str(refused.value)) < 500
    assert store.events().events == []


def test_largest_arguments_are_accepted(store):
    name, agent = "x" * 512, "y" * 128
    store.set(name, name, deep(DEEP - 1), updated_by=agent, reason="z" * 500)
    store.set("n", "k", "x" * 262_142, updated_by="ann")
    assert store.claim("z" * 512, agent=agent, note="z" * 500)
    assert store.get(name, name).updated_by == agent


def test_names_of_all_scripts_are_accepted(store):
    for name in ("日本 語", "Ελλάδα", "naïve", "руский", "עברית", "a.b-c_d+e@f", "\U0001f600", "ﬁ"):
        store.set(name, name, 1, updated_by="ann")
    assert len(store.list_namespaces()) == 8


def test_refusal_never_shows_a_stored_value(store):
    store.set("n", "k", "secret", updated_by="ann")
    with pytest.raises(holdlog.ConflictError) as conflict:
        store.set("n", "k", "other", updated_by="bob", expected_version=7)
    assert "secret" not in str(conflict.value)
    assert conflict.value.detail.actual_value == "secret"


def test_unknown_argument_is_refused(store):
    with pytest.raises(TypeError):
        store.set("n", "k", 1, updated_by="ann", expectd_version=1)


def test_refused_claim_calls_are_false_and_others_true(store):
    store.claim("a.py", agent="ann")
    store.set("n", "k", 1, updated_by="ann")
    refused = {
        "busy": store.claim("a.py", agent="bob"),
        "not_holder": store.release("a.py", agent="bob"),
        "not_found": store.release("never.py", agent="bob"),
        "timeout": store.wait("a.py", timeout_seconds=0),
    }
    done = {
        "claimed": store.claim("b.py", agent="bob"),
        "already_claimed": store.claim("a.py", agent="ann"),
        "available": store.wait("free.py", timeout_seconds=0),
        "released": store.release("a.py", agent="ann"),
        "ok": store.watch("n", "k", 0, timeout_seconds=0),
    }
    assert {it.status for it in refused.values()} == set(refused)
    assert {it.status for it in done.values()} == set(done)
    assert not any(refused.values())
    assert all(done.values())


def run_without_extras(program):
    """Run a program where the packages of the extras are not installed. Returns its last line."""
    absent = "import sys; sys.modules |= dict.fromkeys(('fastmcp', 'langgraph', 'mcp', 'nats', 'psycopg'))\n"
    command = [sys.executable, "-c", absent + program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()[-1]


def test_names_of_the_package_can_be_listed_and_imported_without_extras():
    program = (
        "from holdlog import *; import holdlog; print({'ConflictError', 'StateStore'} <= {*dir(holdlog)} & {*dir()})"
    )
    assert run_without_extras(program) == "True"


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        ("import holdlog; holdlog.StateStore('postgresql://localhost/x')", "postgres"),
        ("import holdlog.langgraph", "langgraph"),
        ("import holdlog; holdlog.subscribe", "nats"),
    ],
)
def test_what_needs_an_extra_names_it(program, extra):
    assert run_without_extras(program).endswith(f"is not installed; install holdlog[{extra}]")
