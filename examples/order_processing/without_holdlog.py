"""Two agents update one order that is only a dict: the later write overwrites the earlier one, and nothing says so."""

import sys
import threading
from collections.abc import Callable
from typing import Any

Order = dict[str, Any]

orders: dict[str, Order] = {"order-1234": {"status": "received", "reserved": False, "total": 89.99}}
both_have_read = threading.Barrier(2, timeout=30)
inventory_has_written = threading.Event()


def change(agent: str, edit: Callable[[Order], Order], is_slow: bool) -> None:
    order = orders["order-1234"]
    print(f"{agent:<16} reads   {order}\n", end="")
    both_have_read.wait()  # where a model thinks, for seconds: the other agent reads meanwhile
    if is_slow:
        inventory_has_written.wait(timeout=30)
    orders["order-1234"] = edit(order)
    print(f"{agent:<16} writes  {edit(order)}\n", end="")
    inventory_has_written.set()


def reserve(order: Order) -> Order:
    return order | {"status": "processing", "reserved": True}


def discount(order: Order) -> Order:
    return order | {"total": round(order["total"] * 0.9, 2)}


def main() -> int:
    agents = [
        threading.Thread(target=change, args=("inventory-agent", reserve, False)),
        threading.Thread(target=change, args=("pricing-agent", discount, True)),
    ]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()
    order = orders["order-1234"]
    print(f"\nThe order is {order}: the reservation is gone. No error, no warning.")
    return 0 if order == {"status": "received", "reserved": False, "total": 80.99} else 1


if __name__ == "__main__":
    sys.exit(main())
