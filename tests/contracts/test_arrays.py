"""Arrays as PostgreSQL reads them: whatever is written comes back."""

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdlog.adapters.stores.postgres.arrays import arrays

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
TRICKY = st.sampled_from(["", "NULL", "null", "{", "}", ",", '"', "\\", '\\"', " ", "\n", "{a,b}", "%s", "'"])
NUMBERS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(st.tuples(st.none() | TRICKY | TEXTS, st.none() | NUMBERS, st.none() | st.binary()))


@pytest.mark.check
def test_rows_come_back_from_arrays_as_they_were(postgres_server: str) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as connection:

        @settings(max_examples=300, deadline=None)
        @given(ROWS)
        def come_back(rows: list[tuple[str | None, int | None, bytes | None]]) -> None:
            select = "SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bytea[])"
            assert connection.execute(select, arrays((str, int, bytes), rows), prepare=True).fetchall() == rows

        come_back()
