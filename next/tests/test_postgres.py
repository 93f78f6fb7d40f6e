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
