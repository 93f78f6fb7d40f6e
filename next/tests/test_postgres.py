"""The store in PostgreSQL beyond the doors: URLs that are wrong, what a command that reads leaves alone."""

import psycopg
import pytest

import holdlog
from tests.support.programs import run

pytestmark = pytest.mark.xdist_group("postgres")


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
