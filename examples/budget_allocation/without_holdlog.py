"""Two agents draw from one budget that is only a dict: it is overspent, and nobody is told."""

import sys
import threading

BUDGET = 10_000
WANTED = {"search-agent": 8_000, "print-agent": 7_000}

budget = {"remaining": BUDGET}
committed: dict[str, int] = {}
both_have_read = threading.Barrier(len(WANTED), timeout=30)
first_has_written = threading.Event()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")  # in one piece: the newline of print may come after another thread's line


def allocate(agent: str) -> None:
    remaining = budget["remaining"]
    say(f"{agent:<13} reads   ${remaining:,} remaining")
    both_have_read.wait()  # where a model thinks, for seconds: the other one reads meanwhile
    if agent != "search-agent":
        first_has_written.wait(timeout=30)  # a slower model: it writes last

    amount = min(WANTED[agent], remaining)
    budget["remaining"] = remaining - amount
    committed[agent] = amount
    say(f"{agent:<13} writes  ${remaining - amount:,} remaining, ${amount:,} committed")
    first_has_written.set()


def main() -> int:
    agents = [threading.Thread(target=allocate, args=(agent,)) for agent in WANTED]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()

    total = sum(committed.values())
    print(
        f"\nCommitted ${total:,} of ${BUDGET:,}; the budget still shows ${budget['remaining']:,}. No error, no warning."
    )
    return 0 if total == 15_000 and budget["remaining"] == 3_000 else 1


if __name__ == "__main__":
    sys.exit(main())
