"""URLs, logins and databases that cannot be used: one line that says what to do, soon, and no password anywhere."""

import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from urllib.parse import quote

import psycopg
import pytest

from holdlog import StateStore
from holdlog.adapters.cli.main import main
from holdlog.adapters.operating_system.location import without_password
from holdlog.adapters.stores.postgres.opening import open_postgres
from holdlog.adapters.stores.postgres.schema import MAJOR
from holdlog.adapters.stores.postgres.target import database_target
from holdlog.domain.refusals import HoldlogError, StoreError, UnavailableError
from tests.support.commands import until, write
from tests.support.postgres import GERMAN, PostgresOverTcp, postgres_over_tcp
from tests.support.slow import slow
from tests.support.wire import Wire

pytestmark = pytest.mark.xdist_group("postgres over tcp")

SECRET = "s3cret"
AT_ONCE = 5.0
"""Seconds, on a busy machine, in which what will not mend itself must be told."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresOverTcp]:
    with postgres_over_tcp() as found:
        found.execute(
            f"CREATE ROLE ann LOGIN PASSWORD '{SECRET}'",
            f"CREATE ROLE guest LOGIN PASSWORD '{SECRET}'",
            f"CREATE ROLE \"o'dd @:/%\" LOGIN PASSWORD '{SECRET}@:/?#%&= é'",
            f"CREATE ROLE reader LOGIN PASSWORD '{SECRET}'",
            "ALTER ROLE reader SET default_transaction_read_only = on",
            "GRANT ann TO reader",
            "CREATE DATABASE mine OWNER ann",
            'CREATE DATABASE "o\'dd é" OWNER ann',
            'GRANT CREATE ON DATABASE "o\'dd é" TO "o\'dd @:/%"',
            "CREATE DATABASE ascii ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0 OWNER ann",
            "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0 OWNER ann",
        )
        yield found


Require = Callable[..., str]


@pytest.fixture
def require_refused(capsys: pytest.CaptureFixture[str]) -> Require:
    """The URL is refused at once, by the library and by the command line, in one line with these words and without the
    password; the line."""

    def require(url: str, *words: str) -> str:
        started = time.monotonic()
        with pytest.raises(HoldlogError) as refusal:
            StateStore(url)
        assert time.monotonic() - started < AT_ONCE
        code = 1 if isinstance(refusal.value, UnavailableError) else 2
        assert main(["set", "n", "k", "1", "--force", "--db", url]) == code
        out, said = capsys.readouterr()
        assert (out, said) == ("", f"holdlog: {refusal.value}\n")
        assert "\n" not in str(refusal.value)
        assert all(word in said for word in words), said
        assert SECRET not in said + without_password(url)
        return said

    return require


WRONG_LOGINS = [
    ("ann", "wrong-s3cret", "mine", ["refused the login", 'user "ann"']),
    ("ann", "", "mine", ["refused the login", "no password"]),
    ("nobody", SECRET, "mine", ["refused the login", 'user "nobody"']),
    ("ann", SECRET, "nowhere", ['database "nowhere" does not exist', "create it, or use another"]),
    ("guest", SECRET, "mine", ["the database refused", "permission denied"]),
    ("reader", SECRET, "mine", ["read-only"]),
    ("ann", SECRET, "ascii", ["encoding SQL_ASCII;", "create one with UTF8"]),
    ("ann", SECRET, "latin", ["encoding LATIN1;", "create one with UTF8"]),
]


@pytest.mark.check
@pytest.mark.parametrize(("user", "password", "database", "words"), WRONG_LOGINS)
def test_unusable_login_or_database_is_reported_at_once(
    server: PostgresOverTcp, user: str, password: str, database: str, words: list[str], require_refused: Require
) -> None:
    require_refused(server.url(user, password, database), *words)


WRONG_URLS = [
    "postgresql://ann:s3cret%zz@h/x",  # libpq tells the password when it complains of its percent signs
    "postgresql://ann:s3cret%@h/x",
    "postgresql://ann:x@s3cret@h/x",  # and looks for the rest of a password among hosts
    "postgresql://ann:x/s3cret@h/x",
    "postgresql://ann:12#s3cret@h/x",
    "postgresql://ann:12?s3cret@h/x",
    "postgresql://ann:s3cret@[::1/x",
    "postgresql://ann:s3cret@h:port/x",
    "postgresql://ann:s3cret@h:99999/x",
    "postgresql://ann:s3cret@h:0/x",
    "postgresql://ann:s3cret@h/x#here",
    "postgresql://ann:12?s3cret=x@h/x",
    "postgresql://ann:12?schema=a&s3cret=x@h/x",
    "postgresql://ann:s3cret@h/x?schema",
    "postgresql://ann:s3cret@h/x?schema=a%ff",
    "postgresql://ann:s3cret@h/x%ff",
    "postgresql://ann:s3cret@h/x%00",
    "postgresql:/ann:s3cret@h/x",
    "postgresql:ann:s3cret@h/x",
    "postgres:/ann:s3cret@h/x",
]


@pytest.mark.parametrize("url", WRONG_URLS)
def test_invalid_url_is_reported_at_once_without_its_password(url: str, require_refused: Require) -> None:
    assert "%40" in require_refused(url, "the URL cannot be parsed; write postgresql://user@host:5432/database")


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("shema", "unknown option shema in the URL; did you mean schema?"),
        ("Schema", "unknown option Schema in the URL; did you mean schema?"),
        ("ssl_mode", "unknown option ssl_mode in the URL; did you mean sslmode?"),
        ("nonsense", "unknown option nonsense in the URL; known options: schema, and those of libpq"),
    ],
)
def test_misspelt_option_of_a_url_is_named(option: str, says: str, require_refused: Require) -> None:
    require_refused(f"postgresql://ann:{SECRET}@h/x?connect_timeout=3&{option}=x", says)


@pytest.mark.check
@pytest.mark.parametrize("schema", ["", "x" * 51, "é" * 26, "%00", "pg_mine", "%20", "a%20", "%0Aa", "$user"])
def test_invalid_schema_name_is_reported_at_once(
    server: PostgresOverTcp, schema: str, require_refused: Require
) -> None:
    require_refused(f"{server.url('ann', SECRET, 'mine')}?schema={schema}", "schema")


@pytest.mark.check
@pytest.mark.parametrize(
    "schema",
    ["x" * 50, "é" * 25, "a\"b'c d;--é", "a,b", "A%s{}$1", "🦊", "a.b", "a b", "\\", "SELECT", "a\nb", "public"],
)
def test_every_schema_holds_a_separate_store(server: PostgresOverTcp, schema: str) -> None:
    url = f"{server.url('ann', SECRET, 'mine')}?schema={quote(schema)}"
    with StateStore(url) as one, StateStore(url) as other:
        assert one.set("n", "k", schema, updated_by="ann").version == 1
        assert one.claim("a", agent="ann").status == "claimed"
        assert other.watch("n", "k", since_version=0).status == "ok"
        assert other.claim("a", agent="ben").status == "busy"
    with psycopg.connect(server.url("ann", SECRET, "mine")) as connection:
        found = connection.execute(
            "SELECT table_schema FROM information_schema.tables WHERE table_name = 'stored_events'"
        )
        assert (schema,) in found.fetchall()


@pytest.mark.check
def test_special_characters_in_user_password_and_database_are_percent_encoded(server: PostgresOverTcp) -> None:
    user, password = quote("o'dd @:/%", safe=""), quote(f"{SECRET}@:/?#%&= é", safe="")
    url = server.url(user, password, quote("o'dd é"))
    with StateStore(url) as store:
        assert store.set("n", "k", 1, updated_by="ann").version == 1
    assert SECRET not in without_password(url)


def test_url_without_a_host_keeps_its_form() -> None:
    assert database_target("postgresql:///x?host=/run/pg&schema=s") == ("postgresql:///x?host=%2Frun%2Fpg", "s")
    assert database_target("postgres://") == ("postgresql://", "holdlog")


@pytest.mark.check
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://ann:s3cret@127.0.0.1:1/x", "cannot be reached"),
        ("postgresql://ann:s3cret@no.such.host.invalid/x", "no.such.host.invalid"),
        ("postgresql://ann:s3cret@/x?host=/nowhere", "/nowhere"),
    ],
)
def test_starting_database_is_waited_for_and_then_reported(
    url: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdlog.adapters.stores.postgres.opening.LOCK_TIMEOUT", 0.5)
    with pytest.raises(UnavailableError, match=says) as refusal:
        StateStore(url)
    assert not refusal.value.in_doubt
    assert SECRET not in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.check
def test_environment_names_the_store_and_keeps_its_password(server: PostgresOverTcp) -> None:
    for url, code in ((server.url("ann", SECRET, "mine"), 0), (server.url("ann", "wrong-s3cret", "mine"), 2)):
        command = [sys.executable, "-m", "holdlog", "set", "n", "k", "1", "--force"]
        environ = os.environ | {"HOLDLOG_DB": url}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, check=False)
        assert (done.returncode, len(done.stderr.splitlines())) == (code, code // 2), done.stderr
        assert SECRET not in done.stderr + done.stdout


@pytest.mark.check
@pytest.mark.parametrize("password", [*slow(SECRET), "wrong-s3cret"])
@pytest.mark.parametrize("nats", [["--nats", f"nats://ben:{SECRET}@127.0.0.1:1"], *slow([])])
def test_server_logs_no_password_at_any_level(server: PostgresOverTcp, password: str, nats: list[str]) -> None:
    url = server.url("ann", password, "mine")
    wire = Wire("-m", "holdlog", "serve", "--tools", "all", "--log-level", "debug", *nats, env={"HOLDLOG_DB": url})
    if password == SECRET:
        wire.open()
        arguments = {"namespace": "n", "key": "k", "value": 1, "updated_by": "ann", "force": True}
        assert wire.ask("tools/call", {"name": "holdlog_set", "arguments": arguments})["result"]["structuredContent"]
        assert wire.ask("tools/call", {"name": "holdlog_claim", "arguments": {"resource": "a", "agent": "ann"}})
        server.execute(*_cut("ann"))
        assert wire.ask("tools/call", {"name": "holdlog_status", "arguments": {"resource": "a"}})
        assert wire.process.stdin is not None
        wire.process.stdin.close()
    code, said, left = wire.ended()
    wire.close()
    assert code == (0 if password == SECRET else 2), said
    assert not [line for line in (*said, *map(bytes.decode, left)) if SECRET in line]


# --- databases that change under a server


@pytest.mark.check
def test_login_refused_later_is_reported_without_waiting(server: PostgresOverTcp) -> None:
    server.execute("CREATE ROLE later LOGIN PASSWORD 'a'", "GRANT CREATE ON DATABASE mine TO later")
    with StateStore(f"{server.url('later', 'a', 'mine')}?schema=later") as store:
        store.set("n", "k", 1, updated_by="ann")
        server.execute("ALTER ROLE later PASSWORD 'b'", *_cut("later"))
        started = time.monotonic()
        with pytest.raises(StoreError, match="refused the login"):
            store.set("n", "k", 2, updated_by="ann")
        with pytest.raises(StoreError, match="refused the login"):
            store.get("n", "k")
        assert time.monotonic() - started < AT_ONCE
        server.execute("ALTER ROLE later PASSWORD 'a'")
        assert store.set("n", "k", 2, updated_by="ann").version == 2


@pytest.mark.check
def test_database_that_turns_read_only_still_reads_and_refuses_writes(server: PostgresOverTcp) -> None:
    url = f"{server.url('ann', SECRET, 'mine')}?schema=turns"
    with StateStore(url) as store:
        store.set("n", "k", 1, updated_by="ann")
    with StateStore(f"{url}&options=-cdefault_transaction_read_only%3Don") as store:
        assert store.get("n", "k").value == 1
        with pytest.raises(UnavailableError, match="read-only") as refusal:
            store.set("n", "k", 2, updated_by="ann")
        assert not refusal.value.in_doubt
        assert store.get("n", "k").version == 1


@pytest.mark.check
@pytest.mark.parametrize("major", ["99", "0"])
def test_other_schema_version_is_refused_at_open_and_at_runtime(postgres: str, major: str) -> None:
    store = open_postgres(postgres)
    write(store, "k", 1)
    with psycopg.connect(store.target.url, autocommit=True) as connection:
        connection.execute(f"UPDATE {store.target.schema}.meta SET value = '{major}' WHERE name = 'major'")  # type: ignore[call-overload]
    says = "upgrade holdlog" if major == "99" else "older"
    with pytest.raises(StoreError, match=f"schema {major}.*{says}"):
        write(store, "k", 2)
    with pytest.raises(StoreError, match=f"schema {major}.*{says}"):
        open_postgres(postgres)
    with psycopg.connect(store.target.url, autocommit=True) as connection:
        connection.execute(f"UPDATE {store.target.schema}.meta SET value = '{MAJOR}' WHERE name = 'major'")  # type: ignore[call-overload]
    assert write(store, "k", 2) == 2
    store.close()


@pytest.mark.check
def test_tables_dropped_at_runtime_are_reported(postgres: str) -> None:
    store = open_postgres(postgres)
    write(store, "k", 1)
    with psycopg.connect(store.target.url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {store.target.schema} CASCADE")  # type: ignore[call-overload]
    with pytest.raises(StoreError, match="tables are missing"):
        write(store, "k", 2)
    with pytest.raises(StoreError, match="tables are missing"), store.reader() as reader:
        reader.record("n", "k")
    store.close()


@pytest.mark.check
def test_connection_limit_is_waited_for(server: PostgresOverTcp) -> None:
    server.execute("CREATE ROLE few LOGIN PASSWORD 'a' CONNECTION LIMIT 1", "GRANT CREATE ON DATABASE mine TO few")
    url = server.url("few", "a", "mine")
    first, engine = psycopg.connect(url), list[StateStore]()
    waits = threading.Thread(target=lambda: engine.append(StateStore(f"{url}?schema=few")))
    waits.start()
    until(lambda: 'too many connections for role "few"' in server.log.read_text())
    first.close()
    waits.join()
    engine[0].close()


def _cut(role: str) -> list[str]:
    return [f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"]


KEYS = ["A", "Z", "_", "a", "a b", "a-b", "a.b", "ab", "b", "Ä", "ß", "ä", "é", "\ue000", "ﬀ", "🦊", "\U0010ffff"]
"""By code point; people would sort them otherwise, and so would UTF-16."""


@pytest.fixture
def spoken(server: PostgresOverTcp) -> str:
    """A database that sorts as people do, where the machine has the rules for it."""
    try:
        server.execute(f"CREATE DATABASE spoken TEMPLATE template0 OWNER ann ENCODING 'UTF8' LOCALE '{GERMAN}'")
    except psycopg.Error as error:
        warnings.warn(f"this machine sorts by code point only: {error}", stacklevel=1)
        return server.url("ann", SECRET, "mine") + "?schema=spoken"
    url = server.url("ann", SECRET, "spoken")
    with psycopg.connect(url) as connection:
        ordered = connection.execute("SELECT key FROM unnest(%s::text[]) AS key ORDER BY key", (KEYS,)).fetchall()
        assert [key for (key,) in ordered] != KEYS
    return url


CLAIMABLE = {0x10FFFF: 0x2A6DF, 0xE000: 0xFA0E}
"""Resources may have no unassigned characters, and none of private use."""


@pytest.mark.check
def test_keys_are_ordered_by_code_point_in_any_database_locale(spoken: str) -> None:
    with StateStore(spoken) as store:
        for key in reversed(KEYS):
            store.set("n", key, key, updated_by="ann")
            store.set(key, "k", 1, updated_by="ann")
            store.claim(f"custom://{key.translate(CLAIMABLE)}", agent="ann")
        assert [it.key for it in store.list_keys("n")] == KEYS
        assert store.list_namespaces() == sorted([*KEYS, "n"])
        assert [it.resource for it in store.board().claims] == sorted(
            f"custom://{key.translate(CLAIMABLE)}" for key in KEYS
        )
        paged, after = [], None
        while page := store.list_records("n", limit=2, after_key=after).records:
            paged += [it.key for it in page]
            after = paged[-1]
        assert paged == KEYS
        for prefix in ("a", "Ä", "\ue000", "🦊", "\U0010ffff"):
            found = [it.key for it in store.list_records("n", prefix=prefix).records]
            assert found == [key for key in KEYS if key.startswith(prefix)]
