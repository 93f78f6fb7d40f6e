"""The board, and what a resource has been through."""

from tests.support.claims import file_alone, take


def test_board_lists_claims_queues_and_agents(store):
    take(store, "b/", note="one hour")
    take(store, "a", "bob", mode="shared")
    store.claim("b/x", agent="cleo", wait_seconds=0.01, note="a fix")
    board = store.status()
    assert (board.status, board.next_after) == ("ok", None)
    rows = [(it.resource, it.held_by, it.mode, it.version, it.holder_note, it.queue_length) for it in board.claims]
    assert rows == [("a", "bob", "shared", 1, None, 0), ("b/", "ann", "exclusive", 1, "one hour", 1)]
    assert all(it.held_for_seconds >= 0 and it.expires_in_seconds > 0 and it.expires_at for it in board.claims)
    (queue,) = board.queues
    assert (queue.resource, queue.length) == ("b/x", 1)
    assert [(it.agent, it.mode, it.note, it.present) for it in queue.line] == [("cleo", "exclusive", "a fix", False)]
    assert [(it.agent, it.claims) for it in board.agents] == [("ann", 1), ("bob", 1), ("cleo", 0)]


def test_board_of_an_agent_has_what_it_and_its_sub_agents_hold_and_wait_for(store):
    for resource, agent in (("a", "ann"), ("b", "ann/tests"), ("c", "bob"), ("d", "ann-2")):
        take(store, resource, agent)
    store.claim("c", agent="ann", wait_seconds=0.01)
    board = store.status(agent="ann")
    assert ([it.resource for it in board.claims], [it.resource for it in board.queues]) == (["a", "b"], ["c"])
    assert store.status(agent="nobody").claims == []


def test_board_comes_in_pages(store):
    take(store, "r0", also=[f"r{number}" for number in range(1, 7)])
    seen, after = [], None
    while True:
        board = store.status(limit=3, after=after)
        assert len(board.claims) <= 3
        seen += [it.resource for it in board.claims]
        if (after := board.next_after) is None:
            break
    assert seen == [f"r{number}" for number in range(7)]


def test_status_of_a_resource_counts_what_covers_it(store):
    take(store, "src/", mode="shared")
    status = store.status("src/deep/a.py")
    assert (status.status, status.held_by, status.covered_by, status.queue_length) == ("claimed", "ann", "src/", 0)
    store.release("src/", agent="ann", outcome="modified", note="half")
    free = store.status("src/deep/a.py")
    assert (free.status, free.resource, free.previous_holder) == ("available", "src/deep/a.py", "ann")
    assert (free.previous_resource, free.previous_outcome, free.previous_note) == ("src/", "modified", "half")
    assert store.status("never").previous_outcome is None


def test_events_of_a_resource_tell_its_whole_history(store):
    take(store, "src/a.py")
    store.claim("src/a.py", agent="bob", wait_seconds=0.01)
    store.release("src/a.py", agent="bob")
    take(store, "other")
    store.release("src/a.py", agent="ann", outcome="deleted", note="gone")
    take(store, "src/")
    found = [(it.kind, it.by) for it in store.events(resource="src/a.py").events]
    assert found == [
        *(("ClaimGranted", "ann"), ("ClaimQueued", "bob"), ("ClaimUnqueued", "bob")),
        *(("ClaimReleased", "ann"), ("ClaimGranted", "ann")),
    ]
    assert [[it.position for it in store.events(resource=it).events] for it in ("other", "src")] == [[4], [6]]
    assert [it.kind for it in store.events(agent="bob").events] == ["ClaimQueued", "ClaimUnqueued"]


@file_alone
def test_command_prints_board_and_history_of_a_resource(store, command):
    take(store, "custom://r", note="one hour")
    store.release("custom://r", agent="ann", outcome="modified")
    take(store, "custom://r", "bob")
    assert [it["held_by"] for it in command("claims", "--agent", "bob", "--json").json["claims"]] == ["bob"]
    history = command("history", "custom://r")
    assert history.code == 0
    assert [name in history.out for name in ("ann", "bob", "modified")] == [True] * 3
