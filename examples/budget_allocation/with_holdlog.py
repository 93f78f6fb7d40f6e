"""Two agents draw from one budget in holdlog: the second write is refused and made again; the total is exact."""

import sys
import tempfile
import threading
from pathlib import Path

from holdlog import ConflictError, StateStore

BUDGET = 10_000
WANTED = {"search-agent": 8_000, "print-agent": 7_000}

both_have_read = threading.Barrier(len(WANTED), timeout=30)
first_has_written = threading.Event()


def allocate(store: StateStore, agent: str) -> None:
    record = store.get("campaign", "budget")
    print(f"{agent:<13} reads     version {record.version}: ${record.value['remaining']:,} remaining\n", end="")
    both_have_read.wait()  # where a model thinks, for seconds: the other agent reads meanwhile
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
            detail = conflict.detail
            print(f"{agent:<13} conflict  {detail.actual_updated_by} wrote version {detail.actual_version}\n", end="")
            record = store.get("campaign", "budget")
        else:
            print(f"{agent:<13} writes    version {written.version}: ${amount:,} committed\n", end="")
            first_has_written.set()
            return


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, StateStore(Path(folder, "state.db")) as store:
        store.set("campaign", "budget", {"remaining": BUDGET, "committed": {}}, updated_by="setup", expected_version=0)
        agents = [threading.Thread(target=allocate, args=(store, agent)) for agent in WANTED]
        for agent in agents:
            agent.start()
        for agent in agents:
            agent.join()
        committed = store.get("campaign", "budget").value["committed"]
        history = store.history("campaign", "budget")
    print(f"\nCommitted ${sum(committed.values()):,} of ${BUDGET:,}, exactly. Who wrote what:")
    for entry in reversed(history):
        print(f"  version {entry.version}  {entry.updated_by:<13} ${entry.value['remaining']:,} remaining")
    return 0 if committed == {"search-agent": 8_000, "print-agent": 2_000} and len(history) == 3 else 1


if __name__ == "__main__":
    sys.exit(main())
