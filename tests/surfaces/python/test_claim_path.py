"""How long the path of a claim and its release through the library is; `set` has its own test."""

from pathlib import Path

import pytest

from holdlog import StateStore
from tests.support.counted import calls_of

AT_MOST = 675
"""Functions of Python and C that one claim and its release call, once warm."""


@pytest.mark.check
def test_claim_and_release_through_the_library_call_few_functions(tmp_path: Path) -> None:
    with StateStore(tmp_path / "state.db") as store:

        def claim_and_release() -> None:
            store.claim("src/tea.py", agent="ann")
            store.release("src/tea.py", agent="ann")

        for _ in range(3):
            claim_and_release()
        assert 0 < calls_of(claim_and_release) <= AT_MOST
