"""What a claim call returns is true in `if` when it did what was asked, and false when it was refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdlog import StateStore
from holdlog.adapters.api.claims.responses import Deadlock

Call = Callable[[StateStore], object]
REFUSED: dict[str, Call] = {
    "busy": lambda store: store.claim("a.py", agent="bob"),
    "not_holder": lambda store: store.release("a.py", agent="bob"),
    "not_found": lambda store: store.release("never.py", agent="bob"),
    "expired": lambda store: store.release("old.py", agent="ann"),
    "timeout": lambda store: store.wait("a.py", 0),
    "timeout of watch": lambda store: store.watch("n", "k", 1, 0),
}
DONE: dict[str, Call] = {
    "claimed": lambda store: store.claim("b.py", agent="bob"),
    "already_claimed": lambda store: store.claim("a.py", agent="ann"),
    "released": lambda store: store.release("a.py", agent="ann"),
    "available": lambda store: store.wait("free.py", 0),
    "held": lambda store: store.status("a.py"),
    "changed": lambda store: store.watch("n", "k", 0, 0),
}


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    """Ann holds a.py, and held old.py until its lease expired."""
    store = StateStore(tmp_path / "state.db")
    store.set("n", "k", 1, updated_by="ann")
    store.claim("a.py", agent="ann")
    store.claim("old.py", agent="ann", lease_seconds=1)
    store.wait("old.py", 5)
    return store


def test_refused_claim_calls_are_false_and_all_others_true(store: StateStore) -> None:
    with store:
        refused = {name: call(store) for name, call in REFUSED.items()}
        done = {name: call(store) for name, call in DONE.items()}
    assert {name: getattr(it, "status", None) for name, it in refused.items()} == {
        name: name.removesuffix(" of watch") for name in REFUSED
    }
    assert [name for name, it in refused.items() if it] == []
    assert [name for name, it in done.items() if not it] == []
    assert not Deadlock(resource="a", cycle=[], hint="")
