"""`holdlog import --agenthold`: a file of agenthold becomes a new store."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdlog.adapters.cli.store import Bar, mark, print_line

if TYPE_CHECKING:
    from holdlog.adapters.stores.agenthold.importing import ImportReport


def import_agenthold_file(options: argparse.Namespace, location: Path | str) -> None:
    """Import the file that `options.agenthold` names, and print what was imported. Raises HoldlogError."""
    from holdlog.adapters.cli.texts import printable
    from holdlog.adapters.operating_system.location import without_password
    from holdlog.adapters.python.copying import import_agenthold

    started = time.monotonic()
    with Bar("import", "changes") as bar:
        report = import_agenthold(options.agenthold, location, options.claim_ttl, bar.draw)
    seconds = time.monotonic() - started
    if options.json:
        facts = {**report._asdict(), "verified": True, "seconds": round(seconds, 3)}
        print_line(json.dumps({"store": without_password(location), **facts}))
        return
    summary = (
        f"{report.changes:,} changes imported in {seconds:.1f} s as {report.events:,} events, verified;"
        f" current values: {report.values:,}, claims held: {report.claims:,}, agents: {report.agents:,}"
    )
    print_line(f"{mark('ok', sys.stdout)} {summary}")
    for line in _remarks(report):
        print_line(printable(f"  {line}"))
    print_line(printable(f"  the store is {without_password(location)}, store id {report.store_id}"))


def _remarks(report: "ImportReport") -> list[str]:
    """What differs from the file."""
    counts = {
        "changes without an event here, such as the activity of agents": report.unchanged,
        "claims that had expired": report.expired,
        "keys and claims with other versions than in agenthold, which begins again after a deletion": report.renumbered,
        "values that are not JSON, such as NaN, and became text": report.as_text,
    }
    renamed = [f"name that holdlog does not allow, now: {name}" for name in report.renamed]
    return [*(f"{what}: {count:,}" for what, count in counts.items() if count), *renamed]
