"""`holdlog evidence`, and what the published program says about bundles that somebody changed."""

import base64
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import redirect_stdout
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.cli import evidence_report
from holdlog.adapters.cli.main import main
from holdlog.domain.merkle import Frontier, leaf, subtrees
from tests.support.command_line import run_command
from tests.support.evidence import (
    Files,
    digest_of,
    events_of,
    files_of,
    is_proven,
    kind_of,
    story,
    verified,
    with_events,
    with_manifest,
    write_files,
)

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
Run = Callable[..., tuple[int, str, str]]
Change = Callable[[Files], Files]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "state.db"
    story(path)
    return path


@pytest.fixture
def db(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(template, tmp_path / "state.db"))


@pytest.fixture
def run(db: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda *words: run_command(capsys, "evidence", "--db", str(db), *map(str, words))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    """A complete one, a filtered one, and one of another store."""
    folder = tmp_path_factory.mktemp("bundles")
    for name, words in (("complete", ["--from", "2", "--to", "8"]), ("filtered", ["--agent", "ann"]), ("other", [])):
        store = folder / ("other.db" if name == "other" else "state.db")
        if not store.exists():
            story(store)
        with redirect_stdout(StringIO()):
            assert main(["evidence", "--db", str(store), "-o", str(folder / name), *words]) == 0
    return {name: files_of(folder / name) for name in ("complete", "filtered", "other")}


def on_events(change: Callable[[list[dict[str, Any]]], object]) -> Change:
    def changed(files: Files) -> Files:
        events = events_of(files)
        change(events)
        return with_events(files, events)

    return changed


def on_event(number: int, **fields: Any) -> Change:
    return on_events(lambda events: events[number].update(fields))


def rehashed(files: Files) -> Files:
    """A forger who changes a value computes its digest again."""
    events = events_of(files)
    events[-1]["payload"] = '"forged"'
    events[-1] |= {"salt": "00" * 16, "payload_hash": None}
    events[-1]["digest"] = digest_of(events[-1]).hex()
    return with_events(files, events)


def with_body(old: str, new: str) -> Change:
    def changed(files: Files) -> Files:
        body = files["checkpoint.body"].decode().replace(old, new, 1)
        return {**files, "checkpoint.body": body.encode(), "checkpoint.note": body.encode()}

    return changed


def with_root(files: Files) -> Files:
    root = files["checkpoint.body"].decode().split("\n")[2]
    return with_body(root, base64.b64encode(bytes(32)).decode())(files)


def with_line(old: bytes, new: bytes) -> Change:
    return lambda files: {**files, "events.jsonl": files["events.jsonl"].replace(old, new, 1)}


def shifted(event: dict[str, Any]) -> None:
    """Salt and text are hashed as one: their border is moved."""
    event["salt"] += event["payload"][:1].encode().hex()
    event["payload"] = event["payload"][1:]


CHANGES: dict[str, tuple[Change, str]] = {
    "the beginning of a value": (on_events(lambda it: shifted(next(each for each in it if each["payload"]))), "salt"),
    "the spelling of a salt": (on_events(lambda it: it[-1].update(reason_salt=f" {it[-1]['reason_salt']}")), "salt"),
    "the type of the format": (on_event(-1, format=2.0), "unknown format"),
    "the spelling of a node": (
        on_events(lambda it: it[0].update(before=[f" {node}" for node in it[0]["before"]])),
        "malformed",
    ),
    "the store of the manifest": (lambda files: with_manifest(files, store="x"), "two stores"),
    "another file": (lambda files: {**files, "values.csv": b"budget,1\n"}, "does not belong"),
    "a value": (on_event(-2, payload='"forged"', salt="00" * 16, payload_hash=None), "was changed"),
    "a value with its digest": (rehashed, "do not lead to the root"),
    "an author": (on_event(0, state='{"by":"eve"}'), "was changed"),
    "a reason": (on_event(-1, reason="forged", reason_salt="00" * 16), "was changed"),
    "a time": (on_event(1, at=1), "was changed"),
    "the basis": (on_event(2, operation="merge"), "was changed"),
    "a session": (on_event(2, session="shell-0"), "was changed"),
    "a clock of an event in format 1": (on_event(0, clock=1), "was changed|does not cover"),
    "the format": (on_event(-1, format=3), "unknown format"),
    "a position": (
        on_events(lambda events: events[-1].update(position=events[-1]["position"] + 1)),
        "in its place|nodes",
    ),
    "a position as a float": (on_events(lambda it: it[0].update(position=float(it[0]["position"]))), "in its place"),
    "the stream": (on_event(0, originator_id="record:n/k"), "was changed"),
    "the version": (on_event(0, originator_version=7), "was changed"),
    "the digest before": (on_event(0, previous="00" * 32), "was changed"),
    "a hash next to the text": (on_event(1, payload_hash="00" * 32), "must not have"),
    "a field that nothing covers": (on_event(0, comment="forged"), "malformed line"),
    "a field twice": (with_line(b'"position":', b'"payload":"forged","position":'), "malformed line"),
    "a missing field": (on_events(lambda events: events[0].pop("guard")), "malformed line"),
    "an event removed": (on_events(lambda events: events.pop(2)), "too few nodes|missing|does not follow"),
    "the first event removed": (on_events(lambda events: events.pop(0)), "too few nodes|does not follow"),
    "the last event removed": (on_events(lambda events: events.pop()), "missing"),
    "all events removed": (on_events(lambda events: events.clear()), "missing"),
    "an event twice": (on_events(lambda events: events.insert(1, events[0])), "in its place"),
    "two events swapped": (on_events(lambda events: events.insert(0, events.pop(1))), "in its place|nodes"),
    "a node before": (on_events(lambda it: it[0].update(before=["00" * 32] * len(it[0]["before"]))), "root|nodes"),
    "one node too many": (on_events(lambda events: events[1]["before"].append("00" * 32)), "too many nodes"),
    "no nodes after": (lambda files: with_manifest(files, after=[]), "too few nodes|root"),
    "the end of the range": (lambda files: with_manifest(files, last=3), "in its place"),
    "the beginning of the range": (lambda files: with_manifest(files, first=1, complete=True), "missing"),
    "the number of events": (lambda files: with_manifest(files, events=99), "missing"),
    "the format of the bundle": (lambda files: with_manifest(files, format="x"), "not a bundle"),
    "another root": (with_root, "do not lead to the root"),
    "another size": (with_body("\n9\n", "\n8\n"), "within the checkpoint|nodes|root"),
    "the note alone": (lambda files: {**files, "checkpoint.note": b"x\n1\n\n"}, "another text"),
    "no events": (lambda files: {name: it for name, it in files.items() if name != "events.jsonl"}, "damaged"),
    "no manifest": (lambda files: {name: it for name, it in files.items() if name != "manifest.json"}, "damaged"),
    "a manifest that is a list": (lambda files: {**files, "manifest.json": b"[]"}, "damaged"),
    "a line that is not JSON": (lambda files: {**files, "events.jsonl": b"{\n"}, "damaged"),
    "a node that is not hexadecimal": (on_events(lambda it: it[0].update(before=["x"])), "damaged|too many nodes"),
}


@pytest.mark.parametrize("name", ["complete", "filtered"])
def test_changed_bundle_is_never_accepted(bundles: dict[str, Files], name: str) -> None:
    assert is_proven(bundles[name])
    assert [it for it, (changed, _) in CHANGES.items() if is_proven(changed(bundles[name]))] == []


@pytest.mark.check
@pytest.mark.parametrize("name", ["complete", "filtered"])
@pytest.mark.parametrize("change", CHANGES)
def test_verifier_finds_every_change_of_a_bundle(
    bundles: dict[str, Files], tmp_path: Path, name: str, change: str
) -> None:
    changed, problem = CHANGES[change]
    files = changed(bundles[name])
    assert files != bundles[name]
    is_proven, line = verified(write_files(tmp_path / "case.zip", files))
    assert not is_proven
    assert re.search(problem, line), line


def test_verifier_finds_a_checkpoint_of_another_store(bundles: dict[str, Files], tmp_path: Path) -> None:
    other = {name: data for name, data in bundles["other"].items() if name.startswith("checkpoint")}
    files = bundles["complete"] | other
    is_proven, line = verified(write_files(tmp_path / "case.zip", files))
    assert not is_proven
    assert "two stores" in line
    store = other["checkpoint.body"].decode().split("\n")[0]
    is_proven, line = verified(write_files(tmp_path / "case.zip", with_manifest(files, store=store)))
    assert not is_proven
    assert "root of the checkpoint" in line


def test_verifier_refuses_files_that_are_no_whole_bundle(bundles: dict[str, Files], tmp_path: Path) -> None:
    bundle = write_files(tmp_path / "case.zip", bundles["complete"])
    data = bundle.read_bytes()
    assert verified(bundle)[0]
    for part in (b"", data[:-1], data[: len(data) // 2], b"not a zip", data.replace(b"budget", b"Budget", 1)):
        bundle.write_bytes(part)
        assert not verified(bundle)[0]
    assert not verified(write_files(bundle, bundles["complete"], twice="events.jsonl"))[0]
    assert not verified(tmp_path / "missing.zip")[0]


def test_change_of_what_is_not_proven_is_named_as_not_proven(bundles: dict[str, Files], tmp_path: Path) -> None:
    files = bundles["complete"] | {"report.html": b"forged", "unproven/agents.jsonl": b"forged"}
    is_proven, line = verified(write_files(tmp_path / "case.zip", files))
    assert is_proven
    assert {"unproven/", "report.html"} < set(line.partition("Not proven: ")[2].split(", "))


def test_bundle_without_any_event_proves_nothing(bundles: dict[str, Files]) -> None:
    files = bundles["other"]
    leaves = [leaf(bytes.fromhex(event["digest"])) for event in events_of(files)]
    nodes = []
    for first, last in subtrees(0, len(leaves)):
        tree = Frontier()
        for each in leaves[first:last]:
            tree.add(each)
        nodes.append(tree.root().hex())
    emptied = {**files, "events.jsonl": b""}
    assert not is_proven(with_manifest(emptied, first=1, last=9, events=0, complete=False, after=nodes))


@pytest.mark.check
@pytest.mark.skipif(shutil.which("prlimit") is None, reason="needs prlimit")
def test_huge_files_are_not_read_whole(bundles: dict[str, Files], tmp_path: Path) -> None:
    bundle = tmp_path / "case.zip"
    for name in ("events.jsonl", "manifest.json", "checkpoint.note"):
        with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
            for other, data in bundles["complete"].items():
                if other != name:
                    archive.writestr(other, data)
            with archive.open(name, "w") as file:
                for _ in range(600):
                    file.write(bytes(1 << 20))
        assert not verified(bundle, limit=512 << 20)[0]


@needs_openssl
def test_signature_is_verified_by_openssl(run: Run, tmp_path: Path) -> None:
    key, public, other = tmp_path / "key", tmp_path / "key.pub", tmp_path / "other.pub"
    for name in (tmp_path / "unused", key):
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", name], check=True, capture_output=True)
        subprocess.run(["openssl", "pkey", "-in", name, "-pubout", "-out", public], check=True)
        other = other if other.exists() else public.rename(other)
    key.chmod(0o600)
    code, out, err = run("--sign", key, "-o", tmp_path / "case.zip")
    assert (code, err) == (0, "")
    assert "checkpoint of 9 events, signed" in out
    is_proven, line = verified(tmp_path / "case.zip", "--key", public)
    assert is_proven
    assert "checkpoint" not in line.partition("Not proven: ")[2]
    assert not verified(tmp_path / "case.zip", "--key", other)[0]
    files = files_of(tmp_path / "case.zip")
    changed = files | {"checkpoint.sig": bytes(64)}
    assert not verified(write_files(tmp_path / "changed.zip", changed), "--key", public)[0]
    del changed["checkpoint.sig"]
    assert "is not signed" in verified(write_files(tmp_path / "changed.zip", changed), "--key", public)[1]


def test_bundle_under_another_checkpoint_than_the_kept_one_is_refused(
    bundles: dict[str, Files], tmp_path: Path
) -> None:
    bundle, kept = write_files(tmp_path / "case.zip", bundles["complete"]), tmp_path / "kept"
    kept.write_bytes(bundles["complete"]["checkpoint.body"] + "\n— a signature\n".encode())
    is_proven, line = verified(bundle, "--checkpoint", kept)
    assert is_proven
    assert "genuine" not in line
    kept.write_bytes(bundles["other"]["checkpoint.note"])
    assert not verified(bundle, "--checkpoint", kept)[0]


class Elements(HTMLParser):
    """The elements, attributes and texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += f"{data}\n"


def test_report_shows_who_what_and_basis_with_every_text_escaped(run: Run, db: Path, tmp_path: Path) -> None:
    with StateStore(db) as store:
        store.set("n", "k", "\u202e<img src=//x onerror=y>&amp;", updated_by="<b>eve</b>", reason='"><script>')
    assert run("-o", tmp_path / "case.zip")[0] == 0
    html = files_of(tmp_path / "case.zip")["report.html"].decode()
    page = Elements()
    page.feed(html)
    assert not page.tags & {"script", "img", "link", "iframe", "b", "i", "a", "form", "object"}
    assert page.attributes == {"lang", "charset", "http-equiv", "content", "name", "class"}
    assert "//" not in html.replace("custom://deploy", "").replace("src=//x", "")
    for text in (
        *("<b>eve</b>", "\\u202e<img src=//x onerror=y>&amp;", '(reason: "><script>)', "the <b>plan</b>"),
        *("based on version 1; relied on custom://deploy@1", "(redacted)", "ann/tests", "not recorded"),
        *("s3cret <i>purpose</i>", "conflict", "These are all events between the two positions"),
    ):
        assert text in page.text


def test_long_report_refers_to_the_file_with_all_events(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_report, "MAX_REPORTED", 4)
    assert run("-o", tmp_path / "case.zip")[0] == 0
    files = files_of(tmp_path / "case.zip")
    assert b"5 later events are in events.jsonl only" in files["report.html"]
    assert len(events_of(files)) == 9


def test_bundle_is_private_and_never_replaces_a_file(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "case.zip"
    before = os.umask(0)
    try:
        assert run("-o", target)[0] == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    data = target.read_bytes()
    code, out, err = run("-o", target)
    assert (code, out, err) == (
        2,
        "",
        f"holdlog: --out: {target} already exists; pass a file that does not exist yet\n",
    )
    assert target.read_bytes() == data


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--from", "99"), "--from: is 99, but the log ends at position 9"),
        (("--to", "99"), "--to: is 99, but the log ends at position 9"),
        (("--from", "5", "--to", "3"), "--to: is earlier than from; swap the two"),
        (("--from", "now"), "--from: there are no events in this range; pass another moment"),
        (("--from", "soon"), "--from: must be"),
        (("--namespace", "none"), "no event of the range matches the filters; there is nothing to prove"),
        (("--prefix", "b"), "--prefix: requires namespace"),
        (("--kinds", "ValueWriten"), "--kinds: 'ValueWriten' is not one of"),
        (("--sign", "KEYS/missing"), "--sign: KEYS/missing cannot be read (No such file or directory)"),
        (("--sign", "KEYS/open"), "--sign: other users can read KEYS/open; run: chmod 600 KEYS/open"),
        (("--sign", "KEYS/text"), "--sign: KEYS/text is not a private Ed25519 key; to make one, run: openssl"),
        (("--checkpoint", "KEYS/text"), "--checkpoint: KEYS/text: must begin with three lines"),
        (("--checkpoint", "KEYS/missing"), "--checkpoint: KEYS/missing cannot be read"),
        (("--checkpoint", "KEYS/other"), "--checkpoint: is of another store"),
        (("--checkpoint", "KEYS/early"), "--checkpoint: the log does not begin with the events of this checkpoint"),
        (("--checkpoint", "KEYS/binary"), "--checkpoint: KEYS/binary is not text"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_writes_nothing(
    run: Run, db: Path, tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    keys, target = tmp_path / "keys", tmp_path / "out" / "case.zip"
    keys.mkdir()
    target.parent.mkdir()
    [(store_id,)] = kind_of(db).ask("SELECT value FROM meta WHERE name = 'store_id'")
    for name, text in (
        ("text", b"text\n"),
        ("open", b""),
        ("binary", b"\xff\n"),
        ("other", f"other\n1\n{base64.b64encode(bytes(32)).decode()}\n".encode()),
        ("early", f"{store_id}\n4\n{base64.b64encode(bytes(32)).decode()}\n".encode()),
    ):
        (keys / name).write_bytes(text)
        (keys / name).chmod(0o644 if name == "open" else 0o600)
    code, out, err = run("-o", target, *(word.replace("KEYS", str(keys)) for word in words))
    assert (code, out) == (2, "")
    assert err.startswith(f"holdlog: {problem.replace('KEYS', str(keys))}")
    assert err.count("\n") == 1
    assert not list(target.parent.iterdir())


def test_folder_that_cannot_be_written_is_named_in_one_line(run: Run, tmp_path: Path) -> None:
    for target, problem in (
        (tmp_path / "none" / "case.zip", "cannot be created (No such file or directory)"),
        (tmp_path, "already exists"),
        ("/dev/full", "already exists"),
    ):
        code, out, err = run("-o", target)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"--out: {target} {problem}" in err


def test_full_disk_leaves_no_bundle(run: Run, db: Path, tmp_path: Path) -> None:
    import resource

    with StateStore(db) as store:
        store.set("n", "k", base64.b64encode(os.urandom(90_000)).decode(), updated_by="ann")
    folder = tmp_path / "out"
    folder.mkdir()
    command = [sys.executable, "-m", "holdlog", "evidence", "--db", str(db), "-o", str(folder / "case.zip")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000)),
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert not list(folder.iterdir())


def test_missing_store_is_reported_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "case.zip"
    code, out, err = run_command(capsys, "evidence", "--db", str(tmp_path / "none.db"), "-o", str(target))
    assert (code, out) == (1, "")
    assert "there is no store at" in err
    assert not list(tmp_path.iterdir())


def test_outcome_as_json_counts_what_the_bundle_has(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "case.zip"
    code, out, _ = run("--to", "7", "--json", "-o", target)
    found = json.loads(out)
    body = files_of(target)["checkpoint.body"].decode().split("\n")
    assert base64.b64encode(bytes.fromhex(found.pop("root"))).decode() == body[2]
    assert (code, found.pop("file")) == (0, str(target))
    counts = {"first": 1, "last": 7, "events": 7, "refusals": 2, "size": 9}
    assert found == counts | {"complete": True, "values": True, "signed": False}
