"""Complete subtrees of the Merkle tree that are small enough for tests."""

from typing import Final

import pytest

SIZE: Final = 4


def use_small_subtrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stores keep the root of each `SIZE` events."""
    for module in ("adapters.stores.sql.transaction", "adapters.stores.event_log.tree", "projections.tree"):
        monkeypatch.setattr(f"holdlog.{module}.SUBTREE", SIZE)
