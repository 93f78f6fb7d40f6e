"""Two agents draw from one budget in holdlog: the second is refused, reads again, and the total is exact."""

import sys
import tempfile
import threading
from pathlib import Path

from holdlog import ConflictError, StateStore

BUDGET = 10_000
WANTED = {"search-agent": 8_000, "print-agent": 7_000}

conflicts: list[str] = []
both_have_read = threading.Barrier(len(WANTED), timeout=30)
first_has_written = threading.Event()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")  # in one piece: the newline of print may come after another thread's line


def allocate(store: StateStore, agent: str) -> None:
    record = store.get("campaign", "budget")
    say(f"{agent:<13} reads     version {record.version}: ${record.value['remaining']:,} remaining")
    both_have_read.wait()  # where a model thinks, for seconds: the other one reads meanwhile
    if agent != "search-agent":
        first_has_written.wait(timeout=30)  # a slower model: it writes last

    while True:
        amount = min(WANTED[agent], record.value["remaining"])
        budget = {
            "remaining": record.value["remaining"] - amount,
            "committed": record.value["committed"] | {agent: amount},
        }
        try:
            written = store.set("campaign", "budget", budget, updated_by=agent, expected_version=record.version)
        except ConflictError as conflict:
            conflicts.append(agent)
            there = conflict.detail
            say(f"{agent:<13} conflict  {there.actual_updated_by} wrote version {there.actual_version} meanwhile")
            record = store.get("campaign", "budget")
            say(f"{agent:<13} reads     version {record.version}: ${record.value['remaining']:,} remaining")
            continue
        say(f"{agent:<13} writes    version {written.version}: ${amount:,} committed")
        first_has_written.set()
        return


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, StateStore(Path(folder) / "state.db") as store:
        store.set("campaign", "budget", {"remaining": BUDGET, "committed": {}}, updated_by="setup", expected_version=0)
        agents = [threading.Thread(target=allocate, args=(store, agent)) for agent in WANTED]
        for agent in agents:
            agent.start()
        for agent in agents:
            agent.join()

        total = sum(store.get("campaign", "budget").value["committed"].values())
        history = store.history("campaign", "budget")

    print(f"\nCommitted ${total:,} of ${BUDGET:,}, exactly. Who wrote what:")
    for past in reversed(history):
        print(f"  version {past.version}  {past.updated_by:<13} ${past.value['remaining']:,} remaining")
    return 0 if total == BUDGET and conflicts == ["print-agent"] and len(history) == 3 else 1


if __name__ == "__main__":
    sys.exit(main())
