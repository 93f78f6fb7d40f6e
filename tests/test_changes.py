"""Blame of files, diffs in pages, and what a revert restores and keeps."""

import tracemalloc
from datetime import UTC, datetime

import pytest

import holdlog
from holdlog.adapters.operations.base import OPERATIONS
from holdlog.adapters.operations.changes import Revert, RevertBlocks
from holdlog.domain.claims.claim import FileChanged
from holdlog.domain.names import value_stream
from holdlog.domain.revert import Run, Version, find_block
from holdlog.domain.state import Reads
from tests.conftest import both_stores
from tests.support.waiting import until

STREAM = value_stream("n", "k")
RUN = Run(session="bad")
in_memory = pytest.mark.parametrize("kind", ["memory"], indirect=True)


def versions(*authors):
    """A history, the newest first: each author writes its own name; `-` deletes, `x` expires, `?` is redacted."""
    topics = {"-": "ValueDeleted", "x": "ValueExpired"}
    found = []
    for number, author in enumerate(authors, 1):
        topic, by = topics.get(author[-1], "ValueWritten"), author.rstrip("-x?")
        redacted = author[-1] == "?"
        found.append(Version(number, number, topic, number, by, by, None, None, (f"{author}.py",), redacted, None))
    return found[::-1]


def find(*authors):
    """The version of the value before the block, and why it is kept."""
    earliest = next((number for number, author in enumerate(authors, 1) if author.startswith("bad")), 0)
    block = find_block(RUN, STREAM, earliest, versions(*authors))
    assert block.last == len(authors)
    return block.restored, block.reason


@pytest.mark.parametrize(
    ("authors", "restored", "reason"),
    [
        (["bad"], None, None),
        (["ann", "bad", "bad-"], 1, None),
        (["ann", "ann-", "bad"], None, None),
        (["ann", "bad", "x"], 1, None),
        (["ann", "x", "bad"], None, None),
        (["ann", "bad", "x", "bad"], 1, None),
        (["bad", "ann"], None, "changed_since"),
        (["bad", "ann", "x"], None, "changed_since"),
        (["bad", "ann", "bad"], None, "based_on_run"),
        (["ann?", "bad"], None, "redacted"),
        (["ann", "bad?"], None, "redacted"),
        (["ann?", "ann", "bad"], 2, None),
    ],
)
def test_block_of_a_run_ends_where_others_wrote(authors, restored, reason):
    assert find(*authors) == (restored, reason)


def test_block_names_the_claims_that_its_writes_and_the_value_before_relied_on():
    block = find_block(RUN, STREAM, 2, versions("ann", "bad", "bad-"))
    assert block.resources == ("custom://n/k", "ann.py", "bad-.py", "bad.py")
    assert block.writers == {("bad", None)}


@both_stores
def test_revert_restores_the_time_to_live_and_deletes_what_would_have_expired(open_store):
    ann, bad = open_store(session="ann"), open_store(session="bad")
    for key, ttl in (("long", 3600), ("short", 0.2)):
        ann.set("n", key, 1, updated_by="ann", ttl_seconds=ttl)
    ends, short_ends = (ann.get("n", key).expires_at for key in ("long", "short"))
    for key in ("long", "short"):
        bad.set("n", key, 2, updated_by="bad")
    until(lambda: datetime.now(UTC) > short_ends)
    done = ann.revert(session="bad", reverted_by="ann")
    assert {it.key: it.restored for it in done.reverted} == {"long": 1, "short": None}
    assert (ann.get("n", "long").value, ann.get("n", "long").expires_at) == (1, ends)


def test_revert_keeps_what_is_as_it_was(store):
    store.set("n", "k", 1, updated_by="ann")
    store.update("n", "new", updated_by="ann", increment=1)
    store.delete("n", "new", deleted_by="ann")
    events = store.events().events
    done = store.revert(session=events[0].session, reverted_by="boss")
    assert [(it.key, it.restored) for it in done.reverted] == [("k", None)]
    assert [(it.key, it.reason) for it in done.kept] == [("new", "unchanged")]


@in_memory
def test_revert_since_a_position_keeps_what_was_written_before(store):
    positions = [store.set("n", "k", value, updated_by="ann").position for value in "abc"]
    session = store.events().events[0].session
    (key,) = store.revert(session=session, since=positions[2], reverted_by="boss").reverted
    assert (key.restored, store.get("n", "k").value) == (2, "b")


@in_memory
def test_revert_of_many_long_versions_reads_two_values(store):
    for number in range(60):
        store.set("n", "k", f"{number % 2}" * 200_000, updated_by="ann" if number else "bob")
    session = store.events(limit=1).events[0].session
    tracemalloc.start()
    (key,) = store.revert(session=session, agent="ann", reverted_by="boss", dry_run=True).reverted
    assert (key.restored, tracemalloc.get_traced_memory()[1] < 3_000_000) == (1, True)
    tracemalloc.stop()


@in_memory
def test_revert_keeps_what_changed_after_it_was_read(store):
    store.set("n", "k", 1, updated_by="ann")
    (event,) = store.events().events
    operation = Revert.parse({"session": event.session, "reverted_by": "boss"})
    command = RevertBlocks(operation, *operation._find_run(store._engine.store))
    store.set("n", "k", 2, updated_by="ann")
    done = store._engine.run(command, store._caller)
    assert ([(it.key, it.reason) for it in done.kept], done.reverted) == ([("k", "changed_since")], [])
    assert store.get("n", "k").value == 2


class Change:
    """What a hook records of a file."""

    def __init__(self, digest):
        self.digest = digest

    def reads(self):
        return Reads(resources=("a.py",), agent="ann")

    def decide(self, state, moment):
        state.board.start(moment, "ann")
        state.board.record(FileChanged("claim:a.py", "ann", self.digest))
        return state.board.events, None


@in_memory
def test_blame_of_a_file_lists_its_changes_in_pages(store):
    store.claim("a.py", agent="ann")
    for digest in ("1", "2", None):
        store._engine.run(Change(digest), store._caller)
    page = store.blame(resource="a.py", limit=2)
    assert [(it.agent, it.sha256, it.position, it.version) for it in page.changes] == [
        ("ann", None, 4, 4),
        ("ann", "2", 3, 3),
    ]
    last = store.blame(resource="./a.py", before_version=page.next_before)
    assert (last.status, [it.sha256 for it in last.changes], last.next_before) == ("ok", ["1"], None)
    assert store.blame(resource="b.py").changes == []
    for fields in ({}, {"namespace": "n"}, {"key": "k"}, {"namespace": "n", "key": "k", "resource": "a.py"}):
        with pytest.raises(holdlog.InvalidError):
            store.blame(**fields)


@in_memory
def test_diff_in_pages_names_each_changed_key_once(store):
    start = store.set("m", "k", 0, updated_by="ann").position
    keys = [f"{number:04}" for number in range(1_100)]
    for value in (1, 2):
        for first in (0, 550):
            steps = [{"op": "set", "namespace": "n", "key": key, "value": value} for key in keys[first : first + 550]]
            store.transact(steps, updated_by="ann")
    found, after = [], None
    while found == [] or after is not None:
        page = store.diff(start, namespace="n", limit=400, after_key=after)
        found, after = found + [it.key for it in page.changes], page.next_after
    assert found == keys
    assert store.diff(start, start, namespace="n").changes == store.diff("now", namespace="n").changes == []


@in_memory
def test_diff_says_that_a_value_was_redacted_and_not_that_it_was_null(store):
    start = store.set("n", "k", "secret", updated_by="ann").position
    store.set("n", "k", None, updated_by="ann")
    store.redact("record:n/k@1", redacted_by="ann", reason="a password")
    assert store.diff(start, start, namespace="n").changes == []
    for fields in ({}, {"key": "k"}):
        (change,) = store.diff(start, namespace="n", **fields).changes
        assert (change.change, change.redacted, change.paths) == ("changed", True, None)


def test_diff_is_no_tool():
    assert OPERATIONS["diff"].group == ""


@in_memory
def test_diff_tells_true_from_one_and_escapes_names_in_paths(store):
    store.set("n", "k", {"a/b": {"~": 1}, "l": [1, 2]}, updated_by="ann")
    store.set("n", "k", {"a/b": {"~": True}, "l": [1]}, updated_by="ann")
    (change,) = store.diff("v1", namespace="n", key="k").changes
    assert [tuple(it) for it in change.paths] == [("replace", "/a~1b/~0", True, 1), ("remove", "/l/1", None, 2)]
