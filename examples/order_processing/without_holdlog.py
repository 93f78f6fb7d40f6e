"""Two agents update one order that is only a dict: the later write buries the earlier one, and nobody is told."""

import sys
import threading
from typing import Any

orders: dict[str, dict[str, Any]] = {"order-1234": {"status": "received", "reserved": False, "total": 89.99}}
both_have_read = threading.Barrier(2, timeout=30)
inventory_has_written = threading.Event()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")  # in one piece: the newline of print may come after another thread's line


def inventory_agent() -> None:
    order = dict(orders["order-1234"])
    say(f"inventory-agent  reads   {order}")
    both_have_read.wait()
    order |= {"status": "processing", "reserved": True}
    orders["order-1234"] = order
    say(f"inventory-agent  writes  {order}")
    inventory_has_written.set()


def pricing_agent() -> None:
    order = dict(orders["order-1234"])
    say(f"pricing-agent    reads   {order}")
    both_have_read.wait()
    inventory_has_written.wait(timeout=30)  # a slower model: it writes last
    order |= {"total": round(order["total"] * 0.9, 2)}
    orders["order-1234"] = order
    say(f"pricing-agent    writes  {order}")


def main() -> int:
    agents = [threading.Thread(target=inventory_agent), threading.Thread(target=pricing_agent)]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()

    order = orders["order-1234"]
    print(f"\nThe order is {order}: the reservation is gone. No error, no warning.")
    return 0 if order == {"status": "received", "reserved": False, "total": 80.99} else 1


if __name__ == "__main__":
    sys.exit(main())
