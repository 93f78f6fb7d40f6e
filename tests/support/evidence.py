"""Bundles of evidence: made, taken apart, put together again, and verified by the published program."""

import hashlib
import json
import runpy
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from holdlog import StateStore
from holdlog.domain.refusals import HoldlogError
from tests.support.kinds import InDatabase, InFile, Kind
from tests.support.older import format_1
from tests.support.places import Place

VERIFIER = Path(__file__).parents[2] / "docs" / "verify_evidence.py"
_PROGRAM = runpy.run_path(str(VERIFIER))
digest_of = _PROGRAM["digest_of"]
"""The program's own, with which a forger computes digests again."""
Files = dict[str, bytes]


def verified(bundle: Path, *words: str | Path, limit: int | None = None) -> tuple[bool, str]:
    """Whether the program exits with 0, and the line that it prints. It runs without any package. `limit`: bytes of
    memory."""
    command = [sys.executable, "-I", "-S", str(VERIFIER), str(bundle), *map(str, words)]
    if limit is not None:
        command = ["prlimit", f"--as={limit}", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    (line,) = (done.stdout + done.stderr).splitlines()
    assert done.returncode in (0, 1)
    assert line.startswith("NOT PROVEN: " if done.returncode else "proven: ")
    return done.returncode == 0, line


def is_proven(files: Files) -> bool:
    """Whether the program accepts these files, in this process."""
    with TemporaryDirectory() as folder:
        try:
            return bool(_PROGRAM["verify"](str(write_files(Path(folder, "case.zip"), files)), None, None))
        except (SystemExit, *_PROGRAM["DAMAGED"]):
            return False


def files_of(bundle: Path) -> Files:
    with zipfile.ZipFile(bundle) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_files(bundle: Path, files: Mapping[str, bytes], twice: str | None = None) -> Path:
    with zipfile.ZipFile(bundle, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns about a second file of the same name
        for name, data in files.items():
            archive.writestr(name, data)
        if twice is not None:
            archive.writestr(twice, files[twice])
    return bundle


def events_of(files: Files) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files["events.jsonl"].splitlines()]


def with_events(files: Files, events: list[dict[str, Any]]) -> Files:
    lines = (json.dumps(event, ensure_ascii=False, separators=(",", ":")) + "\n" for event in events)
    return {**files, "events.jsonl": "".join(lines).encode()}


def with_manifest(files: Files, **changes: Any) -> Files:
    return {**files, "manifest.json": json.dumps(json.loads(files["manifest.json"]) | changes).encode()}


def story(place: Place) -> None:
    """Nine events of both formats, two refusals and a registered agent; event 4 was redacted."""
    with StateStore(place) as store:
        with format_1():
            store.set("campaign", "budget", 1000, updated_by="lead", reason="the <b>plan</b>")
            store.set("campaign", "notes", ["ü", "\u2028", "🦊"], updated_by="ann")
        store.register("ann", name="Ann", purpose="s3cret <i>purpose</i>")
        store.set("campaign", "key", "sk-leaked", updated_by="ben", reason="pasted")
        held = store.claim("custom://deploy", agent="ann", note="s3cret <script>alert(1)</script>")
        guard = [{"resource": "custom://deploy", "version": held.version}]
        store.set("campaign", "budget", 500, updated_by="ann", expected_version=1, guard=guard)
        for _ in range(2):
            try:
                store.set("campaign", "budget", 700, updated_by="ben", expected_version=1)
            except HoldlogError:
                continue
        store.release("custom://deploy", agent="ann")
        store.delete("campaign", "notes", deleted_by="ann/tests")
        store.set("orders", "first", {"paid": True}, updated_by="ben", reason="s3cret")
    redact(kind_of(place), 4, "payload")


def kind_of(place: Place) -> Kind:
    return InFile(place) if isinstance(place, Path) else InDatabase(place)


def redact(kind: Kind, position: int, column: str) -> None:
    """Remove a text from the log; its hash stays."""
    salted = "salt" if column == "payload" else "reason_salt"
    where = f"WHERE {kind.position} = {position}"
    [(salt, text)] = kind.ask(f"SELECT {salted}, {column} FROM stored_events {where}")
    hashed = hashlib.sha256(bytes(salt) + text.encode()).hexdigest()
    blob = f"X'{hashed}'" if isinstance(kind, InFile) else f"'\\x{hashed}'::bytea"
    kind.run(f"UPDATE stored_events SET {column} = NULL, {salted} = NULL, {column}_hash = {blob} {where}")
