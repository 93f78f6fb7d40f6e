"""Reading the log: pages of events, filters, the long poll, bookmarks, `log`, refusals, `replay`."""

import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import holdlog
from tests.doors.conftest import both_stores
from tests.support.library import in_thread
from tests.support.programs import HOLDLOG, environment

in_file = pytest.mark.parametrize("kind", ["file"], indirect=True)


def put(store, key="k", value=1, by="ann", namespace="n", **options):
    return store.set(namespace, key, value, updated_by=by, **options)


def commit(store, size, by="ann"):
    store.transact(
        [{"op": "set", "namespace": "n", "key": str(it), "value": size} for it in range(size)], updated_by=by
    )


def pages(store, after=0, **choice):
    """All pages up to the end of the log."""
    end = store.list("n").position
    while after < end:
        page = store.events(after, **choice)
        yield page
        assert page.next_position > after
        after = page.next_position


def positions(store, **choice):
    return [event.position for page in pages(store, **choice) for event in page.events]


# --- events


def test_event_has_position_id_author_time_and_fields(store):
    put(store, value={"a": [1, None]}, reason="ads", ttl_seconds=60)
    store.delete("n", "k", deleted_by="bob")
    written, deleted = store.events().events
    assert (written.position, written.id, written.stream, written.version) == (1, "record:n/k@1", "record:n/k", 1)
    assert (written.kind, written.by, written.reason) == ("ValueWritten", "ann", "ads")
    assert (written.namespace, written.key, written.value) == ("n", "k", {"a": [1, None]})
    assert written.at.utcoffset() == timedelta(0)
    assert (deleted.position, deleted.kind, deleted.by, deleted.version) == (2, "ValueDeleted", "bob", 2)


def test_event_names_what_a_write_was_based_on_and_guarded_by(store):
    put(store)
    put(store)
    grant = store.claim("a.py", agent="ann", note="soon")
    guard = [{"resource": "a.py", "version": grant.version}]
    put(store, expected_version=2, guard=guard)
    first, forced, claimed, guarded = store.events().events
    assert (getattr(first, "forced", None), forced.forced) == (None, True)
    assert (guarded.based_on, [dict(it) for it in guarded.guard]) == (2, guard)
    assert (claimed.kind, claimed.stream, claimed.resource) == ("ClaimGranted", "claim:a.py", "a.py")
    assert (claimed.agent, claimed.note) == ("ann", "soon")


@in_file
def test_bad_argument_of_events_is_refused_by_name(store):
    put(store)
    for fields in (
        {"after": -1}, {"after": 2}, {"limit": 0}, {"limit": 1001}, {"prefix": "a"}, {"namespace": ""},
        {"kinds": ["written"]}, {"resource": "../x"}, {"agent": "/"}, {"wait_seconds": -1},
    ):  # fmt: skip
        with pytest.raises(holdlog.InvalidError) as refused:
            store.events(**fields)
        assert str(refused.value).startswith(*fields)


def test_events_are_chosen_by_namespace_prefix_kind_resource_and_agent(store):
    for key in ("a/1", "a/2", "b"):
        put(store, key)
    put(store, "a/1", by="ann/tests", namespace="m")
    store.delete("n", "b", deleted_by="anna")
    store.claim("src/", agent="ann")
    store.claim("lib/x.py", agent="bob")
    for choice, expected in [
        ({"namespace": "n"}, [1, 2, 3, 5]),
        ({"namespace": "n", "prefix": "a/"}, [1, 2]),
        ({"resource": "src/deep/a.py"}, [6]),
        ({"resource": "src"}, [6]),
        ({"resource": "lib/"}, [7]),
        ({"agent": "ann"}, [1, 2, 3, 4, 6]),
        ({"kinds": ["ValueDeleted"]}, [5]),
        ({"kinds": ["ValueDeleted", "claim"]}, [5, 6, 7]),
        ({"kinds": ["record"], "agent": "anna"}, [5]),
    ]:
        assert positions(store, **choice) == expected, choice
        assert store.events(**choice).next_position == 7


# --- pages


def test_page_never_splits_a_transaction(store):
    sizes = [1, 3, 2, 12, 1]
    for size in sizes:
        commit(store, size)
    found = [[it.position for it in page.events] for page in pages(store, limit=4)]
    assert [it for page in found for it in page] == list(range(1, 20))
    ends = {sum(sizes[:number]) for number in range(1, 6)}
    assert {page[-1] for page in found} <= ends
    assert max(len(page) for page in found) >= 12
    assert [it.position for it in store.events(2, limit=1).events][:2] == [3, 4]


def test_pages_are_the_whole_log_while_others_write(store):
    ended = threading.Event()

    def work(number):
        for step in range(30):
            commit(store, 3, by=f"w{number}") if step % 3 else put(store, f"{number}", step)

    def read():
        found, after = [], 0
        while True:
            last = ended.is_set()
            page = store.events(after, limit=7)
            found += [it.position for it in page.events]
            if last and page.next_position == after:
                return found
            after = page.next_position

    with ThreadPoolExecutor(5) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            list(pool.map(work, range(3)))
        finally:
            ended.set()
        assert [it.result() for it in readers] == [list(range(1, 3 * (10 + 60) + 1))] * 2


# --- long poll


def test_long_poll_returns_the_event_it_waited_for(store):
    assert (store.events().events, store.events().next_position) == ([], 0)
    put(store)
    polling = in_thread(store.events, 1, namespace="n", wait_seconds=50)
    put(store, namespace="other")
    put(store, "k2", 7)
    page = polling.result()
    assert [(it.key, it.value) for it in page.events] == [("k2", 7)]
    assert page.next_position == 3


def test_long_poll_ends_without_an_event(store):
    put(store)
    page = store.events(1, wait_seconds=0.01)
    assert (page.events, page.next_position) == ([], 1)
    assert [it.position for it in store.events(0, wait_seconds=50).events] == [1]


@both_stores
def test_followers_of_another_handle_get_each_event_once(open_store):
    writer, reader = open_store(), open_store()

    def follow():
        found, after = [], 0
        while len(found) < 60:
            page = reader.events(after, wait_seconds=50)
            found += [it.position for it in page.events]
            after = page.next_position
        return found

    following = [in_thread(follow) for _ in range(3)]
    for number in range(60):
        put(writer, value=number)
    assert [it.result() for it in following] == [list(range(1, 61))] * 3


# --- bookmarks


def test_reader_continues_after_a_bookmark(store):
    for number in range(5):
        put(store, value=number)
    page = store.events(limit=2)
    assert isinstance(page.bookmark, str)
    assert [it.position for it in store.events(page.bookmark).events] == [3, 4, 5]


@in_file
def test_bookmark_of_another_history_is_refused(store, tmp_path):
    with holdlog.StateStore(tmp_path / "other.db") as other:
        for each in (store, other):
            put(each, value=str(each))
            put(each, "k2")
        theirs = other.events().bookmark
    assert isinstance(theirs, str)
    with pytest.raises(holdlog.InvalidError, match="bookmark"):
        store.events(theirs)


@pytest.mark.parametrize("after", ["nonsense", ":17", "1:", "-1:00", "1:" + "0" * 16])
@in_file
def test_malformed_or_foreign_bookmark_is_refused_by_name(store, after):
    put(store)
    with pytest.raises(holdlog.InvalidError, match=r"^after"):
        store.events(after)


# --- the command


@pytest.fixture
def story(db):
    """Five events and, after the third, two refusals."""
    with holdlog.StateStore(db) as store:
        put(store, "budget", {"eur": "\u202e2000"}, reason="ads", namespace="campaign")
        store.claim("custom://deploy", agent="bob", note="ten minutes")
        store.delete("campaign", "budget", deleted_by="ann")
        with pytest.raises(holdlog.ConflictError):
            put(store, "budget", "secret", "ben", "campaign", expected_version=7)
        assert store.claim("custom://deploy", agent="ben").status == "busy"
        put(store, "budget", 3, namespace="campaign")
        put(store, "other", 4, "bob", "campaign")


def shown(command, *words):
    done = command("log", "--json", *words)
    assert done.code == 0, done
    return [it.get("position", it.get("code")) for it in done.lines]


def test_log_prints_a_line_for_each_event(command, story):
    done = command("log")
    lines = done.out.splitlines()
    assert (done.code, done.err, [line.split()[0] for line in lines]) == (0, "", ["1", "2", "3", "4", "5"])
    for line, words in zip(lines, ("campaign/budget ads ann", "custom://deploy minutes bob", "deleted"), strict=False):
        assert all(word in line for word in (*words.split(), "UTC"))
    assert all(line.isprintable() for line in lines)


@pytest.mark.rest
def test_log_is_restricted_to_a_range_a_resource_and_an_agent(command, story):
    assert shown(command, "--from", "2", "--to", "4", "--kinds", "record") == [3, 4]
    assert shown(command, "--resource", "custom://deploy", "--agent", "bob", "--last", "3") == [2]
    assert shown(command, "--namespace", "campaign", "--after", "1", "--limit", "2") == [3, 4]


def test_log_lists_refusals_among_the_events_without_values(command, story):
    done = command("log", "--refusals", "--json")
    assert [it.get("position", it.get("code")) for it in done.lines] == [1, 2, 3, "conflict", "busy", 4, 5]
    assert {it["by"] for it in done.lines if "code" in it} == {"ben"}
    assert "secret" not in done.out


def test_bad_filter_of_log_is_refused_in_one_line(command, story):
    for words, name in ((("log", "--from", "3", "--to", "1"), "--to"), (("replay", "3", "1"), "TO")):
        done = command(*words)
        assert (done.code, done.out, done.err) == (2, "", f"holdlog: {name}: lies before the first moment\n")


def test_log_follows_new_events(db, story):
    line = [HOLDLOG, "log", "--db", str(db), "--follow", "--after", "4", "--limit", "2", "--json"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment())
    assert json.loads(process.stdout.readline())["position"] == 5
    with holdlog.StateStore(db) as store:
        put(store, "k", 6)
    assert json.loads(process.stdout.readline())["value"] == 6
    assert process.wait(60) == 0
    process.stdout.close()


def test_replay_prints_the_events_of_a_range_and_the_state_then(command, story):
    def replay(*words):
        done = command("replay", *words, "--json")
        return done.json["events"], done.json

    events, state = replay("2", "4")
    assert [it["position"] for it in events] == [2, 3, 4]
    assert [(it["key"], it["value"]) for it in state["values"]] == [("budget", 3)]
    assert [(it["resource"], it["held_by"]) for it in state["claims"]] == [("custom://deploy", "bob")]
    events, state = replay("1", "1")
    assert ([it["position"] for it in events], state["claims"]) == ([1], [])
