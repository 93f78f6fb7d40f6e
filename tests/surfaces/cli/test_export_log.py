"""`holdlog export --log` and `holdlog import`: what they print and write, and what they refuse, in one line."""

import gzip
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdlog import StateStore
from holdlog.adapters.cli.main import main
from tests.support.command_line import run_command
from tests.support.copies import require_fork

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
from holdlog.adapters.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""Runs a command that cannot write more to any file, as on a full disk."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "state.db"
    with StateStore(path) as store:
        for number in range(3):
            store.set("n", f"k{number}", {"n": number, "t": "\u202e"}, updated_by="ann", reason="why")
    return path


@pytest.fixture
def export(source: Path, tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    assert main(["export", "--log", "--db", str(source), "-o", str(path)]) == 0
    return path


def limited(*words: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", LIMITED, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_log_is_exported_to_a_private_file_and_imported(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = tmp_path / "log.jsonl", tmp_path / "copy.db"
    assert run_command(capsys, "export", "--log", "--db", str(source), "-o", str(path)) == (
        *(0, ""),
        f"holdlog: exported 3 events to {path}\n",
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    code, out, err = run_command(capsys, "import", str(path), "--db", str(target))
    first, second = out.splitlines()
    assert (code, err) == (0, "")
    assert first.startswith("✓ 3 events imported in ")
    assert "last position 4, verified; new store id" in first
    assert second == f"  the store is {target}"
    require_fork(source, target)


def test_log_is_compressed_on_request(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = tmp_path / "log.gz", tmp_path / "copy.db"
    assert main(["export", "--log", "--compress", "--db", str(source), "-o", str(path)]) == 0
    assert len(gzip.decompress(path.read_bytes()).splitlines()) == 5
    capsys.readouterr()
    assert main(["import", str(path), "--db", str(target), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["source"], report["target"]) == (str(path), str(target))
    assert (report["events"], report["position"], report["verified"]) == (3, 4, True)


@pytest.mark.check
@pytest.mark.parametrize("compress", [[], ["--compress"]], ids=["plain", "compressed"])
def test_log_goes_through_a_pipe(source: Path, tmp_path: Path, compress: list[str]) -> None:
    holdlog = [sys.executable, "-m", "holdlog"]
    target = tmp_path / "copy.db"
    exporting = subprocess.run(
        [*holdlog, "export", "--log", *compress, "--db", source], capture_output=True, timeout=60, check=True
    )
    command = [*holdlog, "import", "-", "--db", target]
    importing = subprocess.run(command, input=exporting.stdout, capture_output=True, timeout=60)
    assert (exporting.stderr, importing.stderr, importing.returncode) == (b"", b"", 0)
    require_fork(source, target)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["export", "--log", "n"], "--log exports the whole log"),
        (["export", "--log", "--include-deleted"], "--log exports the whole log"),
        (["export", "--compress"], "--out and --compress require --log"),
        (["export", "-o", "x"], "--out and --compress require --log"),
        (["export", "--log", "-o", "log.jsonl"], "there is already a file at log.jsonl"),
        (["export", "--log", "-o", "none/log.jsonl"], "none/log.jsonl cannot be written (No such file"),
        (["export", "--log", "--db", "none.db"], "there is no store at"),
        (["export", "--log", "--db", ":memory:"], ":memory:"),
        (["import", "--db", "new.db"], "name one file"),
        (["import", "log.jsonl", "--agenthold", "x", "--db", "new.db"], "name one file"),
        (["import", "log.jsonl", "--claim-ttl", "9", "--db", "new.db"], "--claim-ttl requires --agenthold"),
        (["import", "log.jsonl"], "there is already a store at"),
        (
            ["import", "none.jsonl", "--db", "new.db"],
            "none.jsonl cannot be read (No such file or directory); check the path",
        ),
        (["import", ".", "--db", "new.db"], ". cannot be read (Is a directory)"),
        (["import", "state.db", "--db", "new.db"], "to copy a store: holdlog copy state.db TO"),
        (["import", "cut.jsonl", "--db", "new.db"], "cut.jsonl, line 4: the export was cut"),
        (["import", "values.jsonl", "--db", "new.db"], "values.jsonl is not an export of a log"),
        (["import", "log.jsonl", "--db", "no/such/new.db"], "does not exist"),
    ],
)
def test_export_and_import_report_each_failure_in_one_line(
    words: list[str],
    message: str,
    export: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = export.parent
    lines = export.read_bytes().splitlines(keepends=True)
    (folder / "cut.jsonl").write_bytes(b"".join(lines[:-1]))
    (folder / "values.jsonl").write_bytes(b'{"namespace":"n"}\n')
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOLDLOG_DB", "state.db")
    before = names(folder)
    capsys.readouterr()
    code, out, err = run_command(capsys, *words)
    assert code != 0
    assert message in err
    assert (out, len(err.splitlines())) == ("", 1)
    assert [name for name in names(folder) if not name.startswith("state.db")] == [
        name for name in before if not name.startswith("state.db")
    ]


def test_full_disk_in_the_middle_leaves_no_export(source: Path, tmp_path: Path) -> None:
    with StateStore(source) as store:
        store.set("n", "large", "x" * 100_000, updated_by="ann")
    folder = tmp_path / "exports"
    folder.mkdir()
    done = limited("export", "--log", "--db", source, "-o", folder / "log.jsonl")
    assert done.returncode == 1
    assert done.stderr == f"holdlog: {folder}/log.jsonl cannot be written (File too large); nothing was exported\n"
    assert names(folder) == []


def test_full_disk_in_the_middle_leaves_no_store(export: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stores"
    folder.mkdir()
    done = limited("import", export, "--db", folder / "state.db")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert names(folder) == []


def test_exported_log_is_escaped_on_a_terminal(source: Path) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "holdlog", "export", "--log", "--db", str(source)]
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 100_000)
    os.close(ours)
    assert done.returncode == 0
    assert "\u202e".encode() not in shown
    assert len(shown.splitlines()) == 5


def test_help_of_export_and_import_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert "holdlog export --log --compress -o log.jsonl.gz" in run_command(capsys, "export", "--help")[1]
    assert "holdlog import log.jsonl --db state.db" in run_command(capsys, "import", "--help")[1]
