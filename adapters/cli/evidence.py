"""`holdlog evidence`: the events of a range with proofs, for somebody who has neither the store nor holdlog."""

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from zipfile import ZIP_DEFLATED, ZipFile

from holdlog.adapters.cli.event_options import FILTERS, add_filters, add_range, choice_of, first_moment, last_moment
from holdlog.adapters.cli.existing_store import location_to_read, open_engine
from holdlog.adapters.cli.moments import MOMENT_HELP
from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.store import Bar, mark, print_line
from holdlog.adapters.operating_system.private import new_private_file
from holdlog.domain.refusals import InvalidError, StoreError

if TYPE_CHECKING:
    from holdlog.adapters.api.events.ranges import LogRange
    from holdlog.adapters.api.past.requests import PointInTime
    from holdlog.adapters.cli.evidence_bundle import Case
    from holdlog.adapters.runtime.engine import Engine
    from holdlog.adapters.stores.sql.reader import SqlReader
    from holdlog.domain.checkpoint import CheckpointNote
    from holdlog.domain.progress import Progress
    from holdlog.projections.tree import LogTree

    Moments = tuple[PointInTime | None, PointInTime | None]

_DESCRIPTION: Final = f"""\
Write a bundle of evidence: the events of a range, with digests and proofs that they are in the log of a checkpoint,
and a report to read. Without filters it also proves that these are all events between the two positions; with
filters, only that the events are in the log. docs/verify_evidence.py verifies it without holdlog.

Refused calls and registered agents are included, but nothing proves them.

{MOMENT_HELP}."""
_EXAMPLES: Final = """\
examples:
  holdlog evidence --from 14:00 --to 14:10 -o case.zip
  holdlog evidence --from 1200 --to 1300 --sign key.pem -o case.zip
  holdlog evidence --from 800 --to 900 --checkpoint tuesday.txt -o case.zip
  holdlog evidence --namespace campaign --without-values -o campaign.zip
"""


def add_evidence(commands: Commands, store: argparse.ArgumentParser, locations: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "evidence",
        parents=[store, locations],
        help="write events with proofs that others can verify without holdlog",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    add_range(parser)
    add_filters(parser)
    parser.add_argument("-o", "--out", required=True, metavar="FILE", help="the bundle, a zip file; must not exist yet")
    checkpoint = parser.add_mutually_exclusive_group()
    checkpoint.add_argument(
        "--sign", metavar="KEY", help="sign the checkpoint with this Ed25519 key, a PEM file (default: unsigned)"
    )
    checkpoint.add_argument(
        "--checkpoint",
        metavar="FILE",
        help="prove under this checkpoint, which was kept elsewhere (default: a new one)",
    )
    parser.add_argument(
        "--without-values",
        action="store_true",
        help="leave out values, messages, notes and purposes; the rest still verifies (default: include them)",
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON (default: text)")
    parser.set_defaults(run=run_evidence)


def run_evidence(options: argparse.Namespace) -> int:
    """Run `holdlog evidence`. Raises HoldlogError, LocationError."""
    first, last = first_moment(options.first, "from"), last_moment(options.last, "to")
    with (
        open_engine(options, location_to_read(options)) as engine,
        Bar("evidence") as bar,
        new_zip(Path(options.out)) as file,
    ):
        case = _write(file, engine, options, (first, last), bar.draw)
    _show(case, options)
    return 0


@contextmanager
def new_zip(path: Path) -> Iterator[ZipFile]:
    """A zip file that gets its name when it is complete; if the block fails, there is none. Only this user can read
    it. Raises InvalidError, OSError."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(new_private_file(path))
        except FileExistsError:
            raise InvalidError(f"--out: {path} already exists; pass a file that does not exist yet") from None
        except OSError as error:
            raise InvalidError(f"--out: {path} cannot be created ({error.strerror})") from None
        yield stack.enter_context(ZipFile(file, "w", ZIP_DEFLATED))


def _write(
    file: ZipFile, engine: "Engine", options: argparse.Namespace, moments: "Moments", progress: "Progress"
) -> "Case":
    from holdlog.adapters.api.past.requests import point_in_time
    from holdlog.adapters.cli.evidence_bundle import Case, EvidenceBundle
    from holdlog.adapters.cli.refusals import refusals_of
    from holdlog.adapters.stores.event_log.evidence import ProvenEvents
    from holdlog.projections.tree import LogTree

    first, last = moments
    choice = choice_of(engine, options)
    found = engine.read(engine.requests.events.range(first, last))
    filters = {name: value for name in FILTERS if (value := getattr(options, name)) is not None}
    with engine.store.snapshot() as snapshot:
        reader = cast("SqlReader", snapshot)
        tree = LogTree(reader)
        note = _note(tree, reader.meta("store_id") or "", options)
        if last is None and found.upto > (size := note.checkpoint.size):
            last, found = point_in_time(size, None), found._replace(upto=size)
        _require_events(found, note)
        case = Case(found.after + 1, found.upto, filters, not options.without_values, note)
        bundle = EvidenceBundle(file, case, engine.requests.rules.spelled)
        bundle.add_events(ProvenEvents(reader, tree, note.checkpoint, found), choice, progress)
        bundle.add_checkpoint()
        refusals = None  # the store does not know what else they were about
        if not filters.keys() - {"agent"}:
            refusals = refusals_of(engine, found, first, last, options.agent)
        return bundle.add_report(refusals, reader.agents(reader.registered(None, -1)))


def _require_events(found: "LogRange", note: "CheckpointNote") -> None:
    size = note.checkpoint.size
    if found.upto > size:
        raise InvalidError(
            f"--to: is after the checkpoint, which has {size} events; pass an earlier moment, or a later checkpoint"
        )
    if found.after >= found.upto:
        raise InvalidError("--from: there are no events in this range; pass another moment")


def _note(tree: "LogTree", store_id: str, options: argparse.Namespace) -> "CheckpointNote":
    """The checkpoint that was passed, or a new one. Raises InvalidError, StoreError."""
    from holdlog.adapters.cli.proof import CheckpointOptions, read_note, signer
    from holdlog.domain.checkpoint import checkpoint_of

    if options.checkpoint is None:
        key = None if options.sign is None else Path(options.sign)
        return signer(CheckpointOptions(sign=key))(checkpoint_of(store_id, tree.size, tree.root()))
    note = read_note(options.checkpoint)
    if note.checkpoint.origin != store_id:
        raise InvalidError("--checkpoint: is of another store")
    if note.checkpoint.size > tree.size or tree.root(note.checkpoint.size) != note.checkpoint.root:
        raise StoreError("--checkpoint: the log does not begin with the events of this checkpoint; run: holdlog verify")
    return note


def _show(case: "Case", options: argparse.Namespace) -> None:
    from holdlog.adapters.cli.texts import positions, printable
    from holdlog.adapters.stores.event_log.findings import counted

    checkpoint = case.note.checkpoint
    is_signed = bool(case.note.signatures)
    signed = "signed" if is_signed else "not signed"
    if not is_signed and options.checkpoint is None:
        signed += ": pass --sign KEY, or keep the checkpoint where nobody can change it"
    if options.json:
        facts = {"file": options.out, "first": case.first, "last": case.last, "events": case.events}
        facts |= {"complete": case.is_complete, "values": case.has_values, "refusals": case.refusals}
        print_line(json.dumps({**facts, "size": checkpoint.size, "root": checkpoint.root.hex(), "signed": is_signed}))
        return
    what = "complete" if case.is_complete else "inclusion only: it does not prove that no other event matches"
    print_line(f"{mark('ok', sys.stdout)} {printable(options.out, kept='')}")
    print_line(f"  {counted(case.events, 'event')} of {positions(case.first, case.last)}; {what}")
    print_line(f"  checkpoint of {counted(checkpoint.size, 'event')}, {signed}")
    command = f"python3 verify_evidence.py {shlex.quote(options.out)}"
    print_line(printable(f"  to verify: {command}  (docs/evidence.md)", kept=""))
