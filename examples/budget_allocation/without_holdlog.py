"""Two agents draw from one budget that is only a dict: it is overspent, and nothing says so."""

import sys
import threading

BUDGET = 10_000
WANTED = {"search-agent": 8_000, "print-agent": 7_000}

budget = {"remaining": BUDGET, "committed": 0}
both_have_read = threading.Barrier(len(WANTED), timeout=30)
first_has_written = threading.Event()


def allocate(agent: str) -> None:
    remaining = budget["remaining"]
    print(f"{agent:<13} reads   ${remaining:,} remaining\n", end="")
    both_have_read.wait()  # where a model thinks, for seconds: the other agent reads meanwhile
    if agent != "search-agent":
        first_has_written.wait(timeout=30)  # a slower model: it writes last
    amount = min(WANTED[agent], remaining)
    budget["remaining"] = remaining - amount
    budget["committed"] += amount
    print(f"{agent:<13} writes  ${remaining - amount:,} remaining, ${amount:,} committed\n", end="")
    first_has_written.set()


def main() -> int:
    agents = [threading.Thread(target=allocate, args=(agent,)) for agent in WANTED]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()
    print(f"\nCommitted ${budget['committed']:,} of ${BUDGET:,}; the budget still shows ${budget['remaining']:,}.")
    return 0 if budget == {"remaining": 3_000, "committed": 15_000} else 1


if __name__ == "__main__":
    sys.exit(main())
