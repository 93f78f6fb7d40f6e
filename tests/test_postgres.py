"""The store in PostgreSQL beyond the doors: URLs that are wrong, what a command that reads leaves alone."""

import gc
import io
import re
import socket
import threading
from contextlib import closing, suppress
from functools import partial

import psycopg
import pytest

import holdlog
from tests.support.programs import HttpServer, run
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("postgres")


def pool(listening, address):
    """Serve clients as PgBouncer does in transaction mode: all with one connection of the server."""
    server = socket.create_connection(address).makefile("rwb")

    def write(stream, data):
        stream.write(data)
        stream.flush()

    def read(stream):
        head = stream.read(5)
        return head + stream.read(int.from_bytes(head[1:]) - 4)

    def relay(client):
        while (message := read(server))[:1] != b"Z":
            is_key = message[:1] == b"K"
            client.write(message[:5] + bytes(len(message) - 5) if is_key else message)
        write(client, message)

    def serve(client, greeting):
        while (length := int.from_bytes(client.read(4))) == 8:  # asks for encryption
            client.read(4)
            write(client, b"N")
        client.read(length - 4)
        write(client, greeting)
        while (message := read(client))[:1] not in (b"X", b""):
            write(server, message)
            if message[:1] in (b"Q", b"S"):
                relay(client)

    write(server, b"\0\0\0\x29\0\3\0\0user\0postgres\0database\0postgres\0\0")
    relay(greeting := io.BytesIO())
    with suppress(OSError):
        while True:
            client = listening.accept()[0].makefile("rwb")
            threading.Thread(target=serve, args=(client, greeting.getvalue()), daemon=True).start()


def test_pooler_that_gives_each_transaction_another_connection_is_refused(postgres_server, postgres):
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        threading.Thread(target=pool, args=(listening, ("127.0.0.1", postgres_server.port)), daemon=True).start()
        url = postgres.replace(f":{postgres_server.port}", f":{listening.getsockname()[1]}")
        with pytest.raises(holdlog.StoreError, match="use the database's own URL, or session mode"):
            holdlog.StateStore(url)


@pytest.mark.parametrize(
    ("part", "problem"),
    [("nobody@", 'role "nobody" does not exist'), ("shy@", 'role "shy" is not permitted to log in'), ("/typo", "typo")],
)
def test_wrong_database_or_role_is_an_error_of_the_settings(postgres_server, part, problem):
    with psycopg.connect(postgres_server.url) as connection:
        connection.execute("DROP ROLE IF EXISTS shy; CREATE ROLE shy NOLOGIN")
    url = postgres_server.url.replace("postgres@", part) if part[-1] == "@" else f"{postgres_server.url[:-9]}{part}"
    with pytest.raises(holdlog.StoreError, match=f"{problem}.*; check the user, the password and the database"):
        holdlog.StateStore(url)
    assert run("get", "n", "k", "--db", url).code == 2


@pytest.mark.parametrize("words", [("get", "n", "k"), ("claims",), ("log",), ("doctor", "--json"), ("check", "a.py")])
def test_command_that_reads_creates_no_schema_and_says_so(postgres_server, postgres, tmp_path, words):
    done = run(*words, "--db", postgres, cwd=tmp_path)
    assert "there is no store in the schema" in done.out + done.err
    assert done.code == (0 if words[0] == "check" else 1)
    with psycopg.connect(postgres_server.url) as connection:
        query = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
        assert connection.execute(query, (postgres.rpartition("=")[2],)).fetchone() is None


def test_store_that_a_role_may_not_read_is_not_taken_for_one_that_does_not_exist(postgres_server, postgres, tmp_path):
    schema = postgres.rpartition("=")[2]
    with holdlog.StateStore(postgres) as store:
        store.claim("a.py", agent="ann")
    with psycopg.connect(postgres_server.url, autocommit=True) as database:
        database.execute(f"CREATE ROLE {schema} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {schema}")
        done = run("get", "n", "k", "--db", postgres.replace("postgres@", f"{schema}@"), cwd=tmp_path)
        database.execute(f"DROP OWNED BY {schema}; DROP ROLE {schema}")
    assert (done.code, "permission denied for table meta; grant the right" in done.err) == (2, True), done


@pytest.mark.parametrize("has_tokens", [True, False])
def test_outage_of_the_database_is_counted_and_logged_in_one_line(postgres_server, tmp_path, has_tokens):
    name, url = f"outage_{has_tokens}".lower(), f"{postgres_server.url[:-9]}/outage_{has_tokens}".lower()
    with closing(psycopg.connect(postgres_server.url, autocommit=True)) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        create = ("token", "create", "--name", "t", "--allow", "admin:*", "--db", url)
        token = run(*create).out.strip() if has_tokens else ""
        server, headers = HttpServer(url, cwd=tmp_path), {"authorization": f"Bearer {token}"}
        ask = partial(server.request, "GET", headers=headers)
        before = ask("/v1/values/n/k").status_code
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        codes = [ask("/v1/values/n/k").status_code for _ in range(2)]
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        until(lambda: ask("/v1/values/n/k").status_code == before)
        counts = ask("/metrics").text
        server.close()
    assert (before, codes, "_created" in counts) == (404, [503, 503], False)
    assert re.search(r'^holdlog_requests_total\{.*status="unavailable"\} [2-9]', counts, re.MULTILINE)
    assert len(server.log) == 2, server.log
    assert server.log[1].startswith("holdlog: a call was refused: the database reported an error: ")


def test_standby_is_refused_and_passed_over_since_it_may_lack_the_last_writes(postgres_server, postgres):
    with holdlog.StateStore(postgres) as store:
        store.set("n", "k", 1, updated_by="ann")
    standby = postgres_server.copy(postgres_server.folder.parent / "standby").start()
    try:
        url = postgres.replace(f":{postgres_server.port}", f":{standby.port}")
        with pytest.raises(holdlog.UnavailableError, match="standby"):
            holdlog.StateStore(url)
        with holdlog.StateStore(postgres.replace("@", f"@127.0.0.1:{standby.port},")) as store:  # first in the list
            assert store.set("n", "k", 2, updated_by="ann").version == 2
            assert store.get("n", "k").version == 2
    finally:
        standby.stop()


def test_process_that_waits_does_not_collect_notifications(postgres: str) -> None:
    with holdlog.StateStore(postgres) as waiting, holdlog.StateStore(postgres) as writing:
        watching = threading.Thread(target=partial(waiting.watch, "n", "last", since_version=0, timeout_seconds=60))
        watching.start()
        for number in range(50):
            writing.set("n", "other", number, updated_by="ann")
        writing.set("n", "last", 1, updated_by="ann")
        watching.join()
        assert sum(isinstance(each, psycopg.Notify) for each in gc.get_objects()) < 10
