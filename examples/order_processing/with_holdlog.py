"""Two agents update one order in holdlog: the later write is refused, and made again on what the first one wrote."""

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdlog import ConflictError, StateStore

Order = dict[str, Any]

both_have_read = threading.Barrier(2, timeout=30)
inventory_has_written = threading.Event()


def change(store: StateStore, agent: str, edit: Callable[[Order], Order], is_slow: bool) -> None:
    record = store.get("orders", "order-1234")
    print(f"{agent:<16} reads     version {record.version}: {record.value}\n", end="")
    both_have_read.wait()  # where a model thinks, for seconds: the other agent reads meanwhile
    if is_slow:
        inventory_has_written.wait(timeout=30)
    while True:
        order = edit(record.value)
        try:
            written = store.set("orders", "order-1234", order, updated_by=agent, expected_version=record.version)
        except ConflictError as conflict:
            detail = conflict.detail
            print(f"{agent:<16} conflict  {detail.actual_updated_by} wrote version {detail.actual_version}\n", end="")
            record = store.get("orders", "order-1234")
        else:
            print(f"{agent:<16} writes    version {written.version}: {order}\n", end="")
            inventory_has_written.set()
            return


def reserve(order: Order) -> Order:
    return order | {"status": "processing", "reserved": True}


def discount(order: Order) -> Order:
    return order | {"total": round(order["total"] * 0.9, 2)}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, StateStore(Path(folder, "state.db")) as store:
        order = {"status": "received", "reserved": False, "total": 89.99}
        store.set("orders", "order-1234", order, updated_by="intake-agent", expected_version=0)
        agents = [
            threading.Thread(target=change, args=(store, "inventory-agent", reserve, False)),
            threading.Thread(target=change, args=(store, "pricing-agent", discount, True)),
        ]
        for agent in agents:
            agent.start()
        for agent in agents:
            agent.join()
        order = store.get("orders", "order-1234").value
        history = store.history("orders", "order-1234")
    print(f"\nThe order is {order}: reserved and discounted. Who wrote what:")
    for entry in reversed(history):
        print(f"  version {entry.version}  {entry.updated_by:<16} {entry.value}")
    return 0 if order == {"status": "processing", "reserved": True, "total": 80.99} and len(history) == 3 else 1


if __name__ == "__main__":
    sys.exit(main())
