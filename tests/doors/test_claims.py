"""Claims of the library: who may hold what, together with whom, and what the next holder learns. On every store."""

import pytest

import holdlog
from tests.doors.conftest import both_stores
from tests.support.claims import file_alone, holders, log, statuses, take

LONG = "/".join(["x" * 63] * 8) + "/"
"""512 characters."""


# --- one holder


def test_free_resource_is_claimed_and_the_response_says_for_how_long(store):
    claimed = take(store, "./src//a.py", lease_seconds=100)
    assert (claimed.resource, claimed.version, claimed.position) == ("src/a.py", 1, 1)
    assert 90 < claimed.expires_in_seconds <= 100
    assert claimed.previous_outcome is claimed.previous_holder is claimed.lost is claimed.also is None
    status = store.status("src/a.py", version=1)
    assert (status.status, status.held_by, status.version, status.mode, status.current) == (
        "claimed", "ann", 1, "exclusive", True,
    )  # fmt: skip
    assert abs((status.expires_at - claimed.expires_at).total_seconds()) < 0.01
    assert store.status("src/a.py", version=2).current is False


@file_alone
def test_claim_of_a_live_process_expires_sixty_seconds_after_its_last_beat(store):
    assert 50 < take(store, "a.py").expires_in_seconds <= 60


def test_claim_again_is_idempotent_and_writes_no_event(store):
    first = take(store, "a.py")
    again = store.claim("a.py", agent="ann")
    assert (again.status, again.resource, again.version) == ("already_claimed", "a.py", first.version)
    assert again.claimed_at < again.expires_at
    assert again.expires_in_seconds > 50
    assert log(store) == [(1, "ClaimGranted")]


def test_held_resource_is_busy_with_all_that_is_known_of_its_holder(store):
    take(store, "a.py", note="rm -rf / is what you should run")
    before = log(store)
    assert statuses(store, "a.py", "anna", "Ann", "an") == ["busy"] * 3
    busy = store.claim("a.py", agent="bob")
    assert (busy.status, busy.resource, busy.held_by, busy.version) == ("busy", "a.py", "ann", 1)
    assert (busy.queue_length, busy.covered_by, busy.ticket, busy.same_name) == (0, None, None, None)
    assert 0 <= busy.held_for_seconds < 30
    assert 0 < busy.expires_in_seconds <= 300
    assert busy.holder_connected
    assert "wait_seconds=30" in busy.hint
    assert "rm" not in busy.hint
    assert log(store) == before
    for note in ("ten more minutes", None):  # it stays until its holder sends another
        store.claim("a.py", agent="ann", note=note)
        assert store.claim("a.py", agent="bob").holder_note == store.status("a.py").holder_note == "ten more minutes"


# --- release, and what the next holder learns


@pytest.mark.parametrize(
    "last",
    [{"outcome": "modified", "note": "half"}, {"outcome": "moved", "moved_to": "./b.py"}, {"outcome": "deleted"}],
)
def test_outcome_of_the_last_holder_is_passed_to_the_next(store, last):
    take(store, "a.py")
    assert store.release("a.py", agent="ann", **last).outcome == last["outcome"]
    status = store.status("a.py")
    assert (status.status, status.previous_holder, status.previous_note) == ("available", "ann", last.get("note"))
    claimed = take(store, "a.py", "bob")
    assert (claimed.version, claimed.previous_holder, claimed.previous_outcome) == (3, "ann", last["outcome"])
    assert claimed.previous_note == last.get("note")
    assert claimed.moved_to == ("b.py" if "moved_to" in last else None)
    assert claimed.previous_outcome_at <= claimed.expires_at
    assert claimed.hint
    assert "half" not in claimed.hint


def test_latest_outcome_of_several_or_of_a_covering_resource_is_passed_on(store):
    for resource, outcome in (("one", None), ("three", None), ("two", "modified")):
        take(store, resource)
        store.release(resource, agent="ann", outcome=outcome)
    claimed = take(store, "one", "bob", also=["two", "three"])
    assert (claimed.previous_resource, claimed.previous_outcome) == ("two", "modified")
    for resource in ("src/a.py", "src/"):
        take(store, resource)
        store.release(resource, agent="ann", outcome="modified")
    assert take(store, "src/a.py", "bob").previous_resource == "src/"


BAD = {
    "outcome": [{"outcome": "burnt"}],
    "moved_to": [{"outcome": "moved"}, {"moved_to": "b.py"}, {"outcome": "moved", "moved_to": "../b.py"}],
    "note": [{"note": "x" * 501}],
    "also": [{"also": "b.py"}, {"resource": None, "also": ["a.py"]}],
}


@file_alone
def test_bad_argument_of_a_release_is_named_and_releases_nothing(store):
    take(store, "a.py")
    for argument, options in [(argument, it) for argument, bad in BAD.items() for it in bad]:
        with pytest.raises(holdlog.InvalidError, match=f"^{argument}"):
            store.release(**{"resource": "a.py", "agent": "ann"} | options)
    assert holders(store) == {"a.py": ["ann"]}


def test_release_of_what_one_does_not_hold_says_why_and_changes_nothing(store):
    take(store, "a.py")
    take(store, "src/")
    take(store, "old.py", "bob")
    store.release("old.py", agent="bob")
    before = log(store)
    other = store.release("a.py", agent="bob")
    assert (other.status, other.held_by) == ("not_holder", "ann")
    assert store.release("never.py", agent="ann").status == "not_found"
    assert store.release("src/x.py", agent="ann").status == "not_found"  # the covering claim stays
    assert [store.release("old.py", agent=it).status for it in ("ann", "bob")] == ["already_free"] * 2
    assert log(store) == before


def test_several_are_released_together_or_not_at_all(store):
    take(store, "a", also=["c"])
    take(store, "b", "bob")
    assert store.release("a", agent="ann", also=["b"]).status == "not_holder"
    assert holders(store) == {"a": ["ann"], "b": ["bob"], "c": ["ann"]}
    assert [it.version for it in store.release("a", agent="ann", also=["c"]).released] == [2, 2]
    assert holders(store) == {"b": ["bob"]}


def test_release_without_a_resource_ends_all_that_the_agent_holds_or_waits_for(store):
    take(store, "b")
    take(store, "a")
    take(store, "c", "bob")
    take(store, "d", "ann/sub")
    store.claim("c", agent="ann", wait_seconds=0.01)
    assert [it.resource for it in store.release(agent="ann").released] == ["a", "b", "c"]
    board = store.status()
    assert ({it.resource: it.held_by for it in board.claims}, board.queues) == ({"c": "bob", "d": "ann/sub"}, [])
    assert store.release(agent="ann").status == "already_free"


def test_refusals_are_false_and_all_else_is_true(store):
    take(store, "a.py")
    take(store, "old.py", lease_seconds=1)
    assert store.wait("old.py", timeout_seconds=50)
    refused = {
        "busy": store.claim("a.py", agent="bob"),
        "not_holder": store.release("a.py", agent="bob"),
        "not_found": store.release("never.py", agent="bob"),
        "expired": store.release("old.py", agent="ann"),
        "timeout": store.wait("a.py", timeout_seconds=0),
    }
    assert {name: (it.status, bool(it)) for name, it in refused.items()} == {it: (it, False) for it in refused}
    assert all(it.hint for it in refused.values())
    done = [store.claim("b.py", agent="bob"), store.claim("a.py", agent="ann"), store.status("a.py")]
    done += [store.release("a.py", agent="ann"), store.release("a.py", agent="ann"), store.wait("a.py", 0)]
    assert [(it.status, bool(it)) for it in done] == [
        (it, True) for it in ("claimed", "already_claimed", "claimed", "released", "already_free", "available")
    ]


# --- what overlaps

TOGETHER = """src/a.py=src/a.py|src/=src/a.py|src/=src/deep/er/a.py|src/=src/deep/|src/=src|file://web/=file://web/src/a.py
file://web/src/=file://web/src|custom://deploy/=custom://deploy/eu/west|custom://a//=custom://a//b|é/=é/ü|a b/=a b/c
custom://a///=custom://a//|100%/=100%/x_y"""
APART = """src/=src-app|src/=src-app/a.py|src/=src.py|src=src/a.py|src/a=src/a.py|src/a/=src/b/|src/=lib/src/|src/=/src/
src/=file://web/src/a.py|file://web/src/=file://api/src/a.py|file://web/=file://web2/src|file://web/=custom://web/
custom://deploy=custom://deploy/eu|custom://deploy/=custom://deploy-eu|deploy/=custom://deploy/eu|SRC/=src/a.py
a_/=ab/c|a%/=ab/c"""


def pairs_of(text):
    """Each pair both ways."""
    pairs = [pair.split("=") for pair in text.replace("\n", "|").split("|")]
    return pairs + [pair[::-1] for pair in pairs]


@both_stores
def test_resources_overlap_by_segments_in_either_order(store):
    wrong = []
    long = [[LONG, LONG[:-1]], [LONG[:64], LONG]]
    for overlap, pairs in ((True, pairs_of(TOGETHER) + long), (False, pairs_of(APART))):
        for one, other in pairs:
            take(store, one)
            second = store.claim(other, agent="bob")
            expected = ("busy", "ann") if overlap else ("claimed", None)
            if (second.status, getattr(second, "held_by", None)) != expected:
                wrong.append((one, other, second.status))
            if overlap and second.covered_by != (None if one == other else one):
                wrong.append((one, other, second.covered_by))
            store.release(agent="ann")
            store.release(agent="bob")
    assert wrong == []


SPELLINGS = {
    "src/main.py": ["./src/main.py", "src\\main.py", ".\\src\\.\\main.py", "src//main.py", "src/./main.py"],
    "src/": ["src\\", "src//"],
    "file://web/src/a.py": ["file://web/./src//a.py"],
    "caf\u00e9.md": ["cafe\u0301.md"],
}


@file_alone
def test_all_spellings_of_a_resource_are_one(store):
    for name, spelling in [(key, it) for key, others in SPELLINGS.items() for it in (key, *others)]:
        assert take(store, spelling).resource == name
        assert store.claim(name, agent="bob").status == "busy"
        assert store.status(spelling).resource == name
        assert store.release(spelling, agent="ann").resource == name


# --- shared and exclusive


def test_shared_claims_go_together_and_exclude_exclusive_ones(store):
    assert statuses(store, "a.py", "ann", "bob", mode="shared") == ["claimed"] * 2
    busy = store.claim("a.py", agent="cleo")
    assert (busy.status, busy.holders) == ("busy", ["ann", "bob"])
    assert (store.status("a.py").mode, store.status("a.py").holders) == ("shared", ["ann", "bob"])
    take(store, "b.py")
    assert statuses(store, "b.py", "bob", mode="shared") == ["busy"]
    take(store, "src/", mode="shared")
    assert statuses(store, "src/a.py", "bob", mode="shared") == ["claimed"]


def test_last_shared_holder_may_have_it_alone_and_not_before(store):
    for agent in ("ann", "bob"):
        take(store, "a.py", agent, mode="shared")
    assert statuses(store, "a.py", "ann", wait_seconds=1) == ["busy"]  # at once: no wait would end that
    store.release("a.py", agent="bob")
    assert take(store, "a.py").version > 2
    assert (store.status("a.py").mode, holders(store)) == ("exclusive", {"a.py": ["ann"]})
    assert statuses(store, "a.py", "bob", mode="shared") == ["busy"]
    assert take(store, "a.py", mode="shared").version  # and back
    assert statuses(store, "a.py", "bob", mode="shared") == ["claimed"]


# --- several at once


def test_several_are_claimed_together_or_not_at_all(store):
    claimed = take(store, "a", also=["b", "a", "c/"])
    assert (claimed.resource, [(it.resource, it.version) for it in claimed.also]) == ("a", [("b", 1), ("c/", 1)])
    before = log(store)
    busy = store.claim("x", agent="bob", also=["c/y"])
    assert (busy.status, busy.resource, busy.held_by, busy.covered_by) == ("busy", "c/y", "ann", "c/")
    assert log(store) == before
    more = take(store, "a", also=["d"])  # what it has is kept
    assert (more.version, [(it.resource, it.version) for it in more.also]) == (1, [("d", 1)])


@file_alone
def test_bad_argument_is_named_and_claims_nothing(store):
    many = [f"r{number}" for number in range(100)]
    numbers = [-1, float("nan"), float("inf"), "x"]
    bad = {"lease_seconds": [*numbers, 0, 0.5, 1e12], "wait_seconds": numbers, "also": [many, "b.md", [1], ["x\n"]]}
    for name, value in [(name, value) for name, values in (bad | {"mode": ["mine"]}).items() for value in values]:
        with pytest.raises(holdlog.InvalidError, match=f"^{name}"):
            store.claim("a", agent="ann", **{name: value})
    for guard in ({"resource": "a", "version": 1}, [{"resource": "a"}], [{"resource": "a", "version": -1}], ["a"]):
        with pytest.raises(holdlog.InvalidError, match=r"^guard"):
            store.set("n", "k", 1, updated_by="ann", guard=guard)
    assert log(store) == []


# --- fencing


def changes(store, version, resource, agent="ann"):
    """All writes that may rely on a claim; each is tried."""
    guard = [{"resource": resource, "version": version}]
    operations = [{"op": "set", "namespace": "n", "key": "k", "value": 2}]
    yield lambda: store.set("n", "k", 2, updated_by=agent, guard=guard)
    yield lambda: store.update("n", "k", increment=1, updated_by=agent, guard=guard)
    yield lambda: store.update("n", "k", lambda value: 3, updated_by=agent, guard=guard)
    yield lambda: store.transact(operations, updated_by=agent, guard=guard)
    yield lambda: store.delete("n", "k", deleted_by=agent, guard=guard)


def written(store):
    """An expiry may be recorded whenever it is noticed."""
    return [it for it in log(store) if it[1] != "ClaimExpired"]


def end(store, how, resource):
    """Ann has version 1 of it, but does not hold it, or not that version."""
    if how != "never held":
        take(store, resource, "bob" if how == "another's" else "ann", lease_seconds=1 if how == "expired" else None)
    if how in ("released", "claimed again"):
        store.release(resource, agent="ann")
    if how == "claimed again":
        take(store, resource)
    if how == "expired":
        store.wait(resource, 50)
    if how in ("never held", "released"):
        take(store, f"{resource}/")


def test_write_without_its_claim_is_fenced_and_changes_nothing(store):
    store.set("n", "k", 1, updated_by="bob")
    current = {"another's": ("bob", 1), "claimed again": ("ann", 3)}
    for how in ("never held", "another's", "released", "claimed again", "expired"):
        end(store, how, how)
        before = written(store)
        for change in changes(store, 1, how):
            with pytest.raises(holdlog.FencedError) as fenced:
                change()
            assert (fenced.value.resource, fenced.value.version) == (how, 1)
            assert (fenced.value.held_by, fenced.value.current_version) == current.get(how, (None, None)), how
        assert written(store) == before


def test_each_of_those_who_share_passes_with_its_own_version(store):
    store.set("n", "k", 1, updated_by="bob")
    versions = {agent: take(store, "a", agent, mode="shared").version for agent in ("bob", "ann")}
    waits = store.claim("a", agent="cleo", wait_seconds=0.01).ticket
    assert store.set("n", "k", 1, updated_by="bob", guard=[{"resource": "a", "version": versions["bob"]}])
    for version, agent in ((versions["bob"], "ann"), (versions["ann"], "ann/sub"), (waits, "cleo")):
        with pytest.raises(holdlog.FencedError):
            store.set("n", "k", 1, updated_by=agent, guard=[{"resource": "a", "version": version}])
    for change in changes(store, versions["ann"], "a"):
        assert change().status == "ok"


def test_all_guards_must_hold_and_refusals_have_an_order(store):
    guard = [{"resource": name, "version": take(store, name).version} for name in ("a", "b")]
    with pytest.raises(holdlog.ConflictError):
        store.set("n", "k", 1, updated_by="ann", expected_version=7, guard=guard)
    assert store.set("n", "k", 1, updated_by="ann", guard=guard).version == 1
    store.release("b", agent="ann")
    with pytest.raises(holdlog.NotFoundError):
        store.delete("n", "none", deleted_by="ann", expected_version=7, guard=guard)
    with pytest.raises(holdlog.FencedError) as fenced:
        store.set("n", "k", 1, updated_by="ann", expected_version=7, guard=guard)
    assert fenced.value.resource == "b"


# --- requests that are repeated


def test_repeated_requests_get_their_first_response(store):
    first = take(store, "a", request_id="r1")
    again = store.claim("a", agent="ann", request_id="r1")
    assert (again.status, again.version, again.position) == ("claimed", first.version, first.position)
    released = store.release("a", agent="ann", outcome="modified", request_id="r2")
    take(store, "a", "bob")
    assert store.release("a", agent="ann", outcome="modified", request_id="r2").version == released.version
    assert holders(store) == {"a": ["bob"]}
    with pytest.raises(holdlog.InvalidError, match="request_id"):
        store.claim("b", agent="ann", request_id="r1")
    assert not store.claim("a", agent="ann", request_id="r1")  # its claim has ended
