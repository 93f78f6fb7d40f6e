"""Copy the current values of a file of agenthold (0.3 to 0.10) into a holdlog store, which may have others already.

    python examples/import_agenthold.py agenthold.db state.db

A key that the store has is left as it is, so a second run copies only what is new. The history, claims and agents stay
in the file: finish or release the claims first.
"""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from holdlog import ConflictError, InvalidError, StateStore

CLAIMS_AND_AGENTS = ("claims", "_agents")
"""Namespaces in which agenthold keeps them."""
REASON = "imported from agenthold"
VALUES = "SELECT namespace, key, value, updated_by FROM state_records ORDER BY namespace, key"


def copy(source: str, target: str) -> dict[str, int]:
    """How many values were copied, were there already, and were refused, each of which is printed. Raises
    sqlite3.Error."""
    counts = {"copied": 0, "there already": 0, "refused": 0}
    file = f"{Path(source).resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(file, uri=True)) as connection, StateStore(target) as store:
        for namespace, key, text, agent in connection.execute(VALUES):
            if namespace in CLAIMS_AND_AGENTS:
                continue
            try:
                store.set(namespace, key, json.loads(text), updated_by=agent, expected_version=0, reason=REASON)
                counts["copied"] += 1
            except ConflictError:
                counts["there already"] += 1
            except InvalidError as error:
                print(f"{namespace}/{key}: {error}", file=sys.stderr)
                counts["refused"] += 1
    return counts


def main(source: str, target: str) -> int:
    counts = copy(source, target)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["refused"] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
