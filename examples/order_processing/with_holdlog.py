"""Two agents update one order in holdlog: the later write is refused, merged and written again; nothing is lost."""

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdlog import ConflictError, StateStore

Order = dict[str, Any]

conflicts: list[str] = []
both_have_read = threading.Barrier(2, timeout=30)
inventory_has_written = threading.Event()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")  # in one piece: the newline of print may come after another thread's line


def reserve(order: Order) -> Order:
    return order | {"status": "processing", "reserved": True}


def discount(order: Order) -> Order:
    return order | {"total": round(order["total"] * 0.9, 2)}


def change(store: StateStore, agent: str, edit: Callable[[Order], Order], may_write: threading.Event) -> None:
    """Read, work, write; when somebody wrote meanwhile, the same again on what stands there now."""
    record = store.get("orders", "order-1234")
    say(f"{agent:<16} reads     version {record.version}: {record.value}")
    both_have_read.wait()
    may_write.wait(timeout=30)
    while True:
        order = edit(record.value)
        try:
            written = store.set("orders", "order-1234", order, updated_by=agent, expected_version=record.version)
        except ConflictError as conflict:
            conflicts.append(agent)
            there = conflict.detail
            say(f"{agent:<16} conflict  {there.actual_updated_by} wrote version {there.actual_version} meanwhile")
            record = store.get("orders", "order-1234")
            continue
        say(f"{agent:<16} writes    version {written.version}: {order}")
        return


def inventory_agent(store: StateStore) -> None:
    at_once = threading.Event()
    at_once.set()
    change(store, "inventory-agent", reserve, at_once)
    inventory_has_written.set()


def pricing_agent(store: StateStore) -> None:
    change(store, "pricing-agent", discount, inventory_has_written)  # a slower model: it writes last


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, StateStore(Path(folder) / "state.db") as store:
        order = {"status": "received", "reserved": False, "total": 89.99}
        store.set("orders", "order-1234", order, updated_by="intake-agent", expected_version=0)
        agents = [threading.Thread(target=agent, args=(store,)) for agent in (inventory_agent, pricing_agent)]
        for agent in agents:
            agent.start()
        for agent in agents:
            agent.join()

        order = store.get("orders", "order-1234").value
        history = store.history("orders", "order-1234")

    print(f"\nThe order is {order}: reserved and discounted. Who wrote what:")
    for past in reversed(history):
        print(f"  version {past.version}  {past.updated_by:<16} {past.value}")
    expected = {"status": "processing", "reserved": True, "total": 80.99}
    return 0 if order == expected and conflicts == ["pricing-agent"] and len(history) == 3 else 1


if __name__ == "__main__":
    sys.exit(main())
