"""`holdlog checkpoint` and `holdlog verify`, for people and scripts. They import what they need when they run."""

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.existing_store import require_store
from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.cli.settings import add_options, read_options
from holdlog.adapters.cli.store import Bar, finding_line, mark, print_line, stored_location
from holdlog.adapters.operating_system.options import FILE, LEASE_SECONDS, option, text
from holdlog.domain.refusals import InvalidError

if TYPE_CHECKING:
    from holdlog.adapters.auth.signing import PublicKey
    from holdlog.adapters.runtime.anchoring import Anchoring
    from holdlog.domain.checkpoint import Checkpoint, CheckpointNote
    from holdlog.domain.ports import Store

MAX_NOTE_BYTES: Final = 1024 * 1024
_OF_THE_LOG: Final = ("digests", "redactions", "tree", "source", "checkpoint")
"""Findings that verify always shows; others only if something is wrong."""


@dataclass(frozen=True)
class CheckpointOptions:
    """What is done with a checkpoint."""

    sign: Path | None = option(
        "sign with this private Ed25519 key, a PEM file made by: openssl genpkey -algorithm ed25519",
        FILE,
        unset="checkpoints are not signed",
    )
    anchor_command: str | None = option(
        "a shell command that gets the checkpoint on its standard input and keeps it on another system",
        text("COMMAND"),
        unset="none",
    )


@dataclass(frozen=True)
class AnchorOptions(CheckpointOptions):
    """Checkpoints that a server hands over."""

    anchor_every: float = option(
        "time between checkpoints for --anchor-command, which the server also gives one at its end",
        LEASE_SECONDS,
        name="anchor_every_seconds",
        default=3600.0,
    )


def add_proof(commands: Commands, shared: argparse.ArgumentParser) -> None:
    checkpoint = commands.add_parser(
        "checkpoint",
        parents=[shared],
        help="print a checkpoint of the log, to keep elsewhere",
        description="Print a checkpoint of the log: its store id, number of events and Merkle root, as a C2SP"
        " tlog-checkpoint. Keep it where nobody who can write the store can change it: holdlog verify can later show"
        " that these events are unchanged.",
        epilog="examples:\n  holdlog checkpoint --sign key.pem\n"
        "  holdlog checkpoint --anchor-command 'ssh audit@vault.example \"cat >> kept.txt\"'",
    )
    add_options(checkpoint, CheckpointOptions)
    checkpoint.add_argument("--json", action="store_true", help="print the outcome as JSON (default: text)")
    checkpoint.set_defaults(run=run_checkpoint)
    verify = commands.add_parser(
        "verify",
        parents=[shared],
        help="verify that the log is consistent, and unchanged since a checkpoint",
        description="Verify all digests, the Merkle tree and the views, name the first event that differs, and compare"
        " the log with checkpoints. Without a checkpoint this shows a consistent log, not an unchanged one. Changes"
        " nothing; servers keep working. Exit code 1: something differs.",
        epilog="examples:\n  holdlog verify\n  holdlog verify --checkpoint monday.txt --checkpoint friday.txt --key"
        " public.pem",
    )
    verify.add_argument(
        "--checkpoint",
        metavar="FILE",
        action="append",
        default=[],
        help="a kept checkpoint; repeatable (default: none)",
    )
    verify.add_argument(
        "--key",
        metavar="PUBLIC",
        help="the public key (PEM) that must have signed the checkpoints (default: not checked)",
    )
    verify.add_argument("--json", action="store_true", help="print the findings as JSON (default: text)")
    verify.set_defaults(run=run_verify)


def run_checkpoint(options: argparse.Namespace) -> int:
    """Run `holdlog checkpoint`. Raises HoldlogError, LocationError."""
    from holdlog.adapters.cli.texts import print_note
    from holdlog.adapters.compose import open_store
    from holdlog.adapters.stores.event_log.tree import checkpoint_of

    given = read_options(CheckpointOptions, options)
    note_of = signer(given)
    location = stored_location(options.db)
    require_store(location)
    with closing(open_store(location, print_note)) as store, Bar("checkpoint") as bar:
        note = note_of(checkpoint_of(store, bar.draw))
    if given.anchor_command is not None:
        from holdlog.adapters.operating_system.anchor import hand_over

        hand_over(given.anchor_command, note.text)
    if options.json:
        found = note.checkpoint
        facts = {"origin": found.origin, "size": found.size, "root": found.root.hex(), "note": note.text}
        print_line(json.dumps(facts))
    else:
        print(note.text, end="")
    return 0


def signer(options: CheckpointOptions) -> "Callable[[Checkpoint], CheckpointNote]":
    """Return a function that turns a checkpoint into a note, signed if there is a key. Raises InvalidError."""
    from holdlog.domain.checkpoint import CheckpointNote

    if options.sign is None:
        return CheckpointNote
    from holdlog.adapters.auth.signing import SigningKey

    return SigningKey(options.sign, "--sign").signed


def start_anchoring(store: "Store", options: AnchorOptions) -> "Anchoring | None":
    """Hand over checkpoints of a server's store in the background, until `stop` is called; None without a command.
    Raises InvalidError."""
    from holdlog.adapters.operating_system.anchor import hand_over
    from holdlog.adapters.runtime.anchoring import Anchoring
    from holdlog.adapters.stores.event_log.tree import checkpoint_of

    if (command := options.anchor_command) is None:
        if options.sign is not None:
            raise InvalidError("--sign: requires --anchor-command; to print one checkpoint, use holdlog checkpoint")
        return None
    note_of = signer(options)
    anchoring = Anchoring(
        lambda: checkpoint_of(store), lambda found: hand_over(command, note_of(found).text), options.anchor_every
    )
    anchoring.start()
    return anchoring


def run_verify(options: argparse.Namespace) -> int:
    """Run `holdlog verify`. Raises StoreError, InvalidError, LocationError."""
    from holdlog.adapters.compose import examine
    from holdlog.adapters.operating_system.location import without_password
    from holdlog.adapters.stores.event_log.findings import verdict_of

    checkpoints = _read_checkpoints(options.checkpoint, options.key)
    location = stored_location(options.db)
    require_store(location)
    with Bar("verify") as bar:
        findings = examine(location, bar.draw, checkpoints)
    verdict = verdict_of(findings, checkpoints)
    if options.json:
        rows = [finding._asdict() for finding in findings]
        facts = {"store": without_password(location), **verdict._asdict(), "findings": rows}
        print_line(json.dumps(facts, indent=2))
    else:
        for finding in findings:
            if finding.level == "bad" or finding.name in _OF_THE_LOG:
                print_line(finding_line(finding))
        print_line(f"{mark('ok' if verdict.consistent else 'bad', sys.stdout)} {verdict.text}")
    return 0 if verdict.consistent else 1


def _read_checkpoints(paths: list[str], key: str | None) -> "list[Checkpoint]":
    """Read the files, by size; with a key, require its signature. Raises InvalidError."""
    from holdlog.adapters.auth.signing import PublicKey
    from holdlog.adapters.cli.texts import print_note

    if key is not None and not paths:
        raise InvalidError("--key: requires --checkpoint")
    public = None if key is None else PublicKey(Path(key), "--key")
    found = []
    for path in paths:
        note = read_note(path, public)
        if note.signatures and public is None:
            print_note(f"the signature of {path} is not checked; pass --key")
        found.append(note.checkpoint)
    return sorted(found, key=lambda it: it.size)


def read_note(path: str, public: "PublicKey | None" = None) -> "CheckpointNote":
    """Read the file that --checkpoint names; with a key, require its signature. Raises InvalidError."""
    from holdlog.domain.checkpoint import parse_note

    try:
        with Path(path).open("rb") as file:
            note = parse_note(file.read(MAX_NOTE_BYTES).decode())
        if public is not None:
            public.require_signed(note)
        return note
    except OSError as error:
        raise InvalidError(f"--checkpoint: {path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InvalidError(f"--checkpoint: {path} is not text") from None
    except InvalidError as error:
        raise InvalidError(f"--checkpoint: {path}: {str(error).removeprefix('checkpoint: ')}") from None
