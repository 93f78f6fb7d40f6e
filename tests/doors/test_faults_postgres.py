"""PostgreSQL: connections that are cut, also between COMMIT and its response; a server that is killed or locked."""

import threading
from contextlib import closing

import psycopg
import pytest

import holdlog
from tests.support.library import in_thread
from tests.support.proxy import Proxy
from tests.support.soundness import require_acknowledged, require_sound_log, values_of
from tests.support.waiting import until

pytestmark = pytest.mark.rest
CUTS = ("before", "after")
BOTH = [{"op": "set", "namespace": "n", "key": key, "value": 2} for key in ("k", "l")]
CALLS = {
    "set": (lambda store: store.set("n", "k", 2, updated_by="ann").version, 2),
    "delete": (lambda store: store.delete("n", "k", deleted_by="ann").version, 2),
    "clear": (lambda store: store.clear_namespace("n", deleted_by="ann").deleted_count, 1),
    "update": (lambda store: store.update("n", "k", updated_by="ann", increment=1).value, 2),
    "transact": (lambda store: len(store.transact(BOTH, updated_by="ann").results), 2),
    "claim": (lambda store: store.claim("src/a.py", agent="ann").status, "claimed"),
    "release": (lambda store: store.release("held.py", agent="ann").status, "released"),
}


@pytest.fixture
def proxy(postgres):
    with closing(Proxy(postgres)) as opened:
        yield opened


def admin(url):
    return closing(psycopg.connect(url.partition("?")[0], autocommit=True))


def table_of(url, name="meta"):
    return f'"{url.rpartition("=")[2]}".{name}'


def cut(url, which="true"):
    """End the connections of this server but our own; how many."""
    with admin(url) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND {which}"
        )
        return len(ended.fetchall())


# --- between COMMIT and its response


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("call", CALLS)
def test_write_whose_commit_is_cut_happens_exactly_once(proxy, call, cut):
    write, expected = CALLS[call]
    with holdlog.StateStore(proxy.url) as store:
        store.set("n", "k", 1, updated_by="ann")
        if call == "release":
            store.claim("held.py", agent="ann")
        before = len(require_sound_log(store))
        proxy.next_cut = cut
        assert write(store) == expected
        assert proxy.cuts == 1
        assert len(require_sound_log(store)) == before + (2 if call == "transact" else 1)


@pytest.mark.parametrize("cause", ["no connection", "lock"])
def test_write_left_in_doubt_is_resolved_by_its_request_id(proxy, postgres, cause):
    with holdlog.StateStore(proxy.url) as store, admin(postgres) as other:
        store.set("n", "k", 1, updated_by="ann")
        proxy.next_cut, proxy.is_last = "after", cause == "no connection"
        if cause == "lock":
            proxy.when_committed = lambda: other.execute(f"BEGIN; LOCK TABLE {table_of(postgres)}")
        with pytest.raises(holdlog.UnavailableError) as refusal:
            store.set("n", "k", 2, updated_by="ann", request_id="r-1")
        assert refusal.value.in_doubt
        assert refusal.value.retry_after >= 0
    with holdlog.StateStore(postgres) as elsewhere:
        assert elsewhere.set("n", "k", 2, updated_by="ann", request_id="r-1").version == 2
        assert values_of(elsewhere, "k") == {1: 1, 2: 2}


def test_threads_whose_commits_are_cut_again_and_again_count_exactly(proxy):
    with holdlog.StateStore(proxy.url) as store:
        store.set("n", "k", 0, updated_by="ann")

        def count(name):
            for number in range(15):
                proxy.next_cut = CUTS[number % 2]
                store.set("n", name, number, updated_by=name)
                store.update("n", "k", lambda value: value + 1, updated_by=name)

        for counting in [in_thread(count, f"w{number}") for number in range(4)]:
            counting.result()
        proxy.next_cut = None
        assert proxy.cuts > 5
        assert store.get("n", "k").value == 60
        assert [store.get("n", f"w{number}").version for number in range(4)] == [15] * 4
        require_sound_log(store)


def test_write_whose_connection_is_cut_is_not_acknowledged_before_a_synchronous_standby_has_it(postgres):
    def choose(name):
        database.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        database.execute("SELECT pg_reload_conf()")

    def list_waiting():
        return {pid for (pid,) in database.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")}

    with holdlog.StateStore(postgres) as store, admin(postgres) as database:
        store.set("n", "k", 1, updated_by="ann")
        try:
            choose("missing")
            until(lambda: database.execute("SHOW synchronous_standby_names").fetchone() == ("missing",))
            writing = in_thread(store.set, "n", "k", 2, updated_by="ann")
            until(list_waiting)
            (first,) = list_waiting()
            cut(postgres, f"pid = {first}")
            until(lambda: list_waiting() - {first} or not writing.is_running)
            assert writing.is_running
        finally:
            choose("")
        assert writing.result().version == 2


# --- in each message of a claim

MESSAGES = {"lock": b"LOCK TABLE", "board": b"EXECUTE board", "commit": b"COMMIT"}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("message", MESSAGES)
def test_claim_calls_happen_exactly_once_whatever_message_is_cut(proxy, postgres, message, cut):
    with holdlog.StateStore(proxy.url) as store, holdlog.StateStore(postgres) as other:
        other.claim("x.md", agent="ben")
        waiting = in_thread(holdlog.StateStore(postgres).claim, "x.md", agent="cleo", wait_seconds=50)
        until(lambda: other.status("x.md").queue_length == 1)
        store.claim("x.md", agent="zoe", wait_seconds=0.01)  # so that its session reads all of the board
        before = len(require_sound_log(other))
        proxy.cut_in = MESSAGES[message]

        def call(write):
            proxy.next_cut = cut
            result = write()
            assert proxy.next_cut is None
            return result

        version = call(lambda: store.claim("a.md", agent="ann", also=["b.md"])).version
        guard = [{"resource": "a.md", "version": version}]
        assert call(lambda: store.set("n", "k", 1, updated_by="ann", guard=guard)).version == 1
        assert call(lambda: store.claim("a.md", agent="ann", lease_seconds=100)).status == "already_claimed"
        assert call(lambda: store.claim("x.md", agent="ann")).status == "busy"
        assert call(lambda: store.release("a.md", agent="ann", also=["b.md"])).status == "released"
        assert len(require_sound_log(other)) == before + 5
        other.release("x.md", agent="ben")
        assert waiting.result().status == "claimed"


@pytest.mark.parametrize("message", ["lock", "board"])
def test_claim_whose_connections_are_all_cut_is_unavailable_and_changes_nothing(proxy, postgres, message):
    with holdlog.StateStore(proxy.url) as store, holdlog.StateStore(postgres) as other:
        other.claim("x.md", agent="ben")
        in_thread(other.claim, "x.md", agent="cleo", wait_seconds=50)
        until(lambda: other.status("x.md").queue_length == 1)
        store.claim("x.md", agent="zoe", wait_seconds=0.01)  # so that its session reads all of the board
        before = len(require_sound_log(other))
        proxy.when_committed = lambda: setattr(proxy, "next_cut", "after")
        proxy.cut_in, proxy.next_cut = MESSAGES[message], "after"
        with pytest.raises(holdlog.UnavailableError) as refusal:
            store.claim("a.md", agent="ann")
        assert (refusal.value.in_doubt, proxy.cuts >= 2) == (False, True)
        assert len(require_sound_log(other)) == before
        proxy.cut_in = b"nothing"
        assert store.claim("a.md", agent="ann").status == "claimed"


@pytest.mark.parametrize("cut", CUTS)
def test_what_is_reported_once_is_reported_though_its_commit_is_cut(proxy, postgres, cut):
    """A loss, and how the last hold of what the queue granted ended: no event shows that they were returned."""
    with holdlog.StateStore(proxy.url) as store, holdlog.StateStore(postgres) as other:
        store.claim("a.md", agent="ann", lease_seconds=1)
        other.wait("a.md", 50)
        other.claim("a.md", agent="ben")
        proxy.cut_in, proxy.next_cut = b"COMMIT", cut
        busy = store.claim("a.md", agent="ann")
        assert (proxy.cuts, busy.status, [(it.resource, it.held_by) for it in busy.lost]) == (
            1,
            "busy",
            [("a.md", "ben")],
        )
        assert store.claim("a.md", agent="ann").lost is None
        waiting = in_thread(store.claim, "a.md", agent="ann", wait_seconds=50)
        until(lambda: other.status("a.md").queue_length == 1)
        proxy.cut_in, proxy.next_cut = b"EXECUTE put_claims", cut
        other.release("a.md", agent="ben", outcome="modified")
        granted = waiting.result()
        assert (proxy.cuts, granted.status, granted.previous_outcome) == (2, "claimed", "modified")


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("message", ["lock", "commit"])
def test_block_keeps_its_claim_though_its_beats_are_cut(proxy, postgres, message, cut):
    with holdlog.StateStore(proxy.url) as store, holdlog.StateStore(postgres) as other:
        proxy.cut_in = MESSAGES[message]
        with store.claimed("a.md", agent="ann", lease_seconds=3) as claim:
            began = other.status("a.md").expires_at
            for number in range(1, 4):
                proxy.next_cut = cut
                until(lambda: proxy.cuts == number)  # noqa: B023
            until(lambda: (other.status("a.md").expires_at - began).total_seconds() > 3)
            assert other.status("a.md", claim.version).current


def test_claim_whose_commit_comes_too_late_for_the_database_is_made_again(proxy, postgres):
    """The database ends a transaction that waits for 10 s, so that others get the lock."""

    def is_over():
        with admin(postgres) as connection:
            query = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"
            return connection.execute(query).fetchone() is None

    def stall(message):
        if b"COMMIT" in message:
            proxy.when_sent = lambda message: None
            until(is_over)

    with holdlog.StateStore(proxy.url) as store:
        proxy.when_sent = stall
        assert store.claim("a.md", agent="ann").status == "claimed"
        assert len(require_sound_log(store)) == 1


# --- connections and servers that go away under load


class Load:
    """Threads that write, each with its own handle; a write that is refused is repeated under its request id."""

    def __init__(self, url):
        self.ended = threading.Event()
        self.acknowledged = []
        self.refused = []
        self._threads = [in_thread(self._write, f"w{number}", holdlog.StateStore(url)) for number in range(4)]

    def _write(self, key, opened):
        number = 1
        with opened as store:
            while not self.ended.is_set():
                try:
                    written = store.set("n", key, number, updated_by=key, request_id=f"{key}-{number}")
                except holdlog.UnavailableError as refusal:
                    self.refused.append(refusal)
                else:
                    self.acknowledged.append({"key": key, "version": written.version, "value": number})
                    number += 1

    def wait_for(self, more):
        wanted = len(self.acknowledged) + more
        until(lambda: len(self.acknowledged) >= wanted or not all(it.is_running for it in self._threads))

    def stop(self):
        self.ended.set()
        for thread in self._threads:
            thread.result()


def require_each_write_once(url, load):
    with holdlog.StateStore(url) as store:
        require_sound_log(store)
        require_acknowledged(store, load.acknowledged)
        for number in range(4):
            values = values_of(store, f"w{number}")
            assert values == {version: version for version in values}, "the n-th request is the n-th version"


def test_killed_database_loses_no_acknowledged_write(postgres, postgres_server):
    load = Load(postgres)
    for _ in range(2):
        load.wait_for(50)
        postgres_server.kill()
        postgres_server.restart()
    load.wait_for(50)
    load.stop()
    require_each_write_once(postgres, load)


def test_cut_connections_fail_no_write(postgres):
    load = Load(postgres)
    for _ in range(10):
        load.wait_for(10)
        assert cut(postgres) > 0
    load.wait_for(10)
    load.stop()
    require_each_write_once(postgres, load)
    assert [it for it in load.refused if it.in_doubt] == []


def test_calls_are_unavailable_while_the_database_is_gone_and_succeed_afterwards(postgres, postgres_server):
    with holdlog.StateStore(postgres) as store:
        store.set("n", "k", 1, updated_by="ann")
        postgres_server.kill()
        for call in (lambda: store.set("n", "k", 2, updated_by="ann"), lambda: store.get("n", "k")):
            with pytest.raises(holdlog.UnavailableError) as refusal:
                call()
            assert not refusal.value.in_doubt
            assert "\n" not in str(refusal.value)
        postgres_server.restart()
        assert store.get("n", "k").version == 1
        assert store.set("n", "k", 2, updated_by="ann").version == 2


def test_write_behind_locked_tables_is_refused_in_time_while_reads_go_on(postgres):
    with holdlog.StateStore(postgres) as store, admin(postgres) as other, other.cursor() as cursor:
        store.set("n", "k", 1, updated_by="ann")
        schema = postgres.rpartition("=")[2]
        tables = cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema]).fetchall()
        cursor.execute("BEGIN")
        for (table,) in tables:
            cursor.execute(f'LOCK TABLE "{schema}"."{table}" IN EXCLUSIVE MODE')
        writing = in_thread(store.set, "n", "k", 2, updated_by="ann")
        assert store.get("n", "k").version == 1
        with pytest.raises(holdlog.UnavailableError) as refusal:
            writing.result()
        assert not refusal.value.in_doubt
        cursor.execute("ROLLBACK")
        assert store.set("n", "k", 3, updated_by="ann").version == 2


def test_writes_succeed_after_a_connection_could_not_be_prepared(postgres):
    with holdlog.StateStore(postgres) as store, admin(postgres) as other:
        other.execute(f"ALTER TABLE {table_of(postgres, 'requests')} RENAME TO moved")
        with pytest.raises(holdlog.HoldlogError):
            store.set("n", "k", 1, updated_by="ann")
        other.execute(f"ALTER TABLE {table_of(postgres, 'moved')} RENAME TO requests")
        assert store.set("n", "k", 1, updated_by="ann").version == 1


def test_refused_write_leaves_no_lock(postgres):
    with holdlog.StateStore(postgres) as store, admin(postgres) as other:
        store.set("n", "k", 1, updated_by="ann")
        other.execute(f"UPDATE {table_of(postgres)} SET value = '99' WHERE name = 'schema'")
        with pytest.raises(holdlog.StoreError, match="schema 99"):
            store.set("n", "k", 2, updated_by="ann")
        other.execute(f"BEGIN; LOCK TABLE {table_of(postgres)} NOWAIT; COMMIT")


def test_read_succeeds_after_all_connections_were_cut(postgres):
    """Those of several threads are kept for later reads."""
    with closing(Proxy(postgres, delay=0.01)) as proxy, holdlog.StateStore(proxy.url) as store:
        store.set("n", "k", 1, updated_by="ann")
        for read in (lambda: store.get("n", "k").version, lambda: store.list_keys("n")[0].version):
            for reading in [in_thread(read) for _ in range(12)]:
                assert reading.result() == 1
            assert cut(postgres) > 2
            assert read() == 1


def test_watch_and_wait_hear_of_changes_after_their_connection_was_lost(postgres):
    with holdlog.StateStore(postgres) as store, holdlog.StateStore(postgres) as other:
        other.claim("a.md", agent="ann")
        watching = in_thread(store.watch, "n", "k", 0, timeout_seconds=45)
        waiting = in_thread(store.wait, "a.md", 45)
        until(lambda: cut(postgres, "query ILIKE 'LISTEN%'") > 0)
        other.set("n", "k", 1, updated_by="ann")
        other.release("a.md", agent="ann")
        assert watching.result().version == 1
        assert waiting.result().status == "available"


def test_wait_hears_of_a_release_though_the_database_accepts_no_further_connection(postgres):
    """Without one that listens, the process looks every few seconds."""
    role = postgres.rpartition("=")[2]
    url = postgres.replace("postgres@", f"{role}@")
    with admin(postgres) as other:
        other.execute(f"CREATE ROLE {role} LOGIN; GRANT CREATE ON DATABASE postgres TO {role}")
        with holdlog.StateStore(url) as holding, holdlog.StateStore(url) as store:
            holding.claim("a.md", agent="ann")
            assert store.status("a.md").held_by == "ann"
            count = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}'"
            ((connections,),) = other.execute(count).fetchall()
            other.execute(f"ALTER ROLE {role} CONNECTION LIMIT {connections}")
            waiting = in_thread(store.wait, "a.md", 50)
            until(lambda: store._engine.waiters.by_topic)
            holding.release("a.md", agent="ann")
            assert waiting.result().elapsed_seconds < 30
        other.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_wait_hears_of_a_release_after_a_standby_without_the_last_commits_took_over(postgres):
    schema = f'"{postgres.rpartition("=")[2]}"'
    with holdlog.StateStore(postgres) as store, holdlog.StateStore(postgres) as other, admin(postgres) as database:
        other.claim("a.md", agent="ann")
        for number in range(9):
            other.set("n", "k", number, updated_by="ann")
        waiting = in_thread(store.wait, "a.md", 50)
        until(lambda: store._engine.waiters._position == 10)
        for table in ("events", "current"):
            database.execute(f"DELETE FROM {schema}.{table} WHERE position > 1")
        cut(postgres)
        assert other.release("a.md", agent="ann").version == 2
        assert waiting.result().elapsed_seconds < 30
