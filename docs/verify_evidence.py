"""Verify a bundle of `holdlog evidence` without holdlog. Needs Python 3.9 or newer and nothing else.

python3 verify_evidence.py case.zip [--checkpoint FILE] [--key PUBLIC_KEY]

--checkpoint: a checkpoint that was kept elsewhere, which must be that of the bundle. --key: a public Ed25519 key (PEM),
which must have signed the checkpoint; runs openssl. Prints one line. Exit code 0: proven; 1: not.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

START = ("originator_id", "originator_version", "topic", "at")
CALLER = ("principal", "session", "request_id", "correlation_id")
BASIS = ("operation", "based_on", "forced", "guard")
TEXTS = ("salt", "payload", "payload_hash", "reason_salt", "reason", "reason_hash")
FIELDS = {"position", "before", "previous", "digest", "format", "clock", "state", *START, *CALLER, *BASIS, *TEXTS}
NAMES = {"manifest.json", "events.jsonl", "report.html", "unproven/refusals.jsonl", "unproven/agents.jsonl"}
NAMES |= {"checkpoint.body", "checkpoint.note", "checkpoint.sig"}
MAX_BYTES = 64 * 1024 * 1024  # of an event, or of a small file
DAMAGED = (OSError, EOFError, LookupError, ValueError, TypeError, AttributeError, RuntimeError, zlib.error)


def require(condition: object, problem: str) -> None:
    if not condition:
        raise SystemExit(f"NOT PROVEN: {problem}")


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def as_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def from_hex(text: str, length: int) -> bytes:
    data = bytes.fromhex(text)
    require(len(data) == length and data.hex() == text, "a hash or a salt is malformed")
    return data


def text_hash(salt: Any, text: str | None, stored: str | None) -> str | None:
    """The hash of a text. The stored hash counts only if the text was left out or redacted. The length of the salt
    decides where the text begins."""
    require(salt is None if text is None else stored is None, "a text has a salt or a hash that it must not have")
    return stored if text is None else sha256(from_hex(salt, 16), text.encode()).hex()


def digest_of(row: dict[str, Any]) -> bytes:
    """As in docs/decisions/0004 (format 1) and 0030 (format 2) of holdlog."""
    start, caller, basis = ([row[name] for name in names] for names in (START, CALLER, BASIS))
    payload = text_hash(row["salt"], row["payload"], row["payload_hash"])
    if row["format"] is None:
        rest = [row["clock"], *basis, row["reason_salt"], row["reason_hash"]]
        require(rest == [None] * len(rest), f"event {row['position']} has fields that format 1 does not cover")
        caller.insert(3, row["reason"])
        return sha256(as_json([row["previous"], *start, *caller, row["state"], payload]))
    require(type(row["format"]) is int and row["format"] == 2, f"event {row['position']} has an unknown format")
    reason = text_hash(row["reason_salt"], row["reason"], row["reason_hash"])
    facts = [*start, row["clock"], *caller, *basis, row["state"], payload, reason]
    return sha256(as_json(["holdlog/2", row["previous"], *facts]))


class Tree:
    """The tree of RFC 6962, as the roots of its largest complete subtrees, from left to right."""

    def __init__(self) -> None:
        self.size = 0
        self.roots: list[tuple[int, bytes]] = []

    def add(self, root: bytes, leaves: int = 1) -> None:
        self.size += leaves
        while self.roots and self.roots[-1][0] == leaves:
            root, leaves = sha256(b"\x01", self.roots.pop()[1], root), leaves * 2
        self.roots.append((leaves, root))

    def add_subtrees(self, roots: list[str], end: int) -> None:
        """Add the largest complete subtrees up to index `end`: events that are not in the bundle."""
        for root in roots:
            require(self.size < end, "the proof has too many nodes")
            largest = 1 << (end - self.size).bit_length() - 1
            self.add(from_hex(root, 32), min(self.size & -self.size or largest, largest))
        require(self.size == end, "the proof has too few nodes")

    def root(self) -> bytes:
        result = self.roots[-1][1]
        for _, left in reversed(self.roots[:-1]):
            result = sha256(b"\x01", left, result)
        return result


def read(bundle: zipfile.ZipFile, name: str) -> bytes:
    data = bundle.open(name).read(MAX_BYTES)
    require(len(data) < MAX_BYTES, f"{name} is too large")
    return data


def verify_events(bundle: zipfile.ZipFile, manifest: dict[str, Any], size: int, root: bytes) -> tuple[int, int]:
    """Returns how many events are proven, and how many of their texts are not in the bundle."""
    position, last, tree, count, missing = manifest["first"] - 1, manifest["last"], Tree(), 0, 0
    require(
        type(position) is type(last) is int and 0 <= position < last <= size,
        "the positions are not within the checkpoint",
    )
    streams: dict[str, tuple[int, str]] = {}
    file = bundle.open("events.jsonl")
    while line := file.readline(MAX_BYTES):
        row = json.loads(line)
        is_exact = as_json(row) + b"\n" == line and set(row) == FIELDS and type(row["before"]) is list
        require(is_exact, "events.jsonl has a malformed line")
        require(type(row["position"]) is int and position < row["position"] <= last, "an event is not in its place")
        position, stream, version = row["position"], row["originator_id"], row["originator_version"]
        require(digest_of(row).hex() == row["digest"], f"event {position} was changed")
        before, digest = streams.get(stream, (0, ""))
        follows = row["previous"] == digest if version == before + 1 else version > before
        require(follows, f"event {position} does not follow the one before it in its stream")
        streams[stream] = version, row["digest"]
        tree.add_subtrees(row["before"], position - 1)
        tree.add(sha256(b"\x00", from_hex(row["digest"], 32)))
        count += 1
        missing += sum(row[name] is not None for name in ("payload_hash", "reason_hash"))
    complete = count == last - manifest["first"] + 1
    require(0 < count == manifest["events"] and complete is manifest["complete"], "events are missing, or were added")
    tree.add_subtrees(manifest["after"], size)
    require(tree.root() == root, "the events do not lead to the root of the checkpoint")
    return count, missing


def require_signed(bundle: zipfile.ZipFile, key: str) -> None:
    require("checkpoint.sig" in bundle.namelist(), "the checkpoint is not signed")
    require(shutil.which("openssl"), "the signature needs openssl, which is not installed")
    require(len(read(bundle, "checkpoint.sig")) == 64, "checkpoint.sig is not a signature")
    with tempfile.TemporaryDirectory() as folder:
        body, signature = (bundle.extract(f"checkpoint.{part}", folder) for part in ("body", "sig"))
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", key]
        command += ["-rawin", "-in", body, "-sigfile", signature]
        done = subprocess.run(command, capture_output=True, check=False)
    require(done.returncode == 0, "openssl does not accept the signature of the checkpoint with this key")


def verify(path: str, kept: str | None, key: str | None) -> str:
    """What is proven, in one line."""
    with zipfile.ZipFile(path) as bundle:
        require(len(bundle.namelist()) == len(set(bundle.namelist())), "the bundle has two files of the same name")
        require(NAMES.issuperset(bundle.namelist()), "the bundle has a file that does not belong to it")
        manifest, body = json.loads(read(bundle, "manifest.json")), read(bundle, "checkpoint.body").decode()
        require(manifest["format"] == "holdlog-evidence/1", "this is not a bundle that this program knows")
        store, size, root, *_ = body.split("\n")
        require(manifest["store"] == store, "the bundle and its checkpoint are of two stores")
        note = read(bundle, "checkpoint.note").decode()
        require(note == body or note.startswith(f"{body}\n— "), "checkpoint.note has another text than checkpoint.body")
        count, missing = verify_events(bundle, manifest, int(size), base64.b64decode(root, validate=True))
        if kept is not None:
            other = Path(kept).read_text("utf-8").partition("\n\n")[0].rstrip("\n") + "\n"
            require(other == body, "the bundle is under another checkpoint than the one that was kept")
        if key is not None:
            require_signed(bundle, key)
    complete = manifest["complete"]
    what = "all events" if complete else f"inclusion only, of {count} of the events"
    unproven = ["unproven/", "report.html"] if complete else ["that no other event matches", "unproven/", "report.html"]
    if kept is None and key is None:
        unproven.insert(0, "that the checkpoint is genuine (pass --checkpoint or --key)")
    return (
        f"proven: {what} from position {manifest['first']} to {manifest['last']}, unchanged since the checkpoint at"
        f" position {size} of store {store}; texts left out or redacted: {missing}. Not proven: {', '.join(unproven)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("--checkpoint", metavar="FILE")
    parser.add_argument("--key", metavar="PUBLIC_KEY")
    options = parser.parse_args()
    try:
        line = verify(options.bundle, options.checkpoint, options.key)
    except (*DAMAGED, zipfile.BadZipFile) as error:
        raise SystemExit(f"NOT PROVEN: the bundle is damaged or cannot be read ({type(error).__name__})") from None
    sys.stdout.write("".join(each if each.isprintable() else "?" for each in line) + "\n")


if __name__ == "__main__":
    main()
