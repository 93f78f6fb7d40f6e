"""Every command writes what agents stored, whatever the encoding of its output can show."""

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdlog import StateStore, create_state
from holdlog.adapters.cli.main import build_parser, main
from tests.support.slow import check

TEXT = "résumé – 日本 🦊"
LOCALE_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}


class Line(NamedTuple):
    """Words of a command, its exit code, and whether what was stored is in its output."""

    words: tuple[str, ...]
    code: int = 0
    shows: bool = True
    json: bool = True


COMMANDS: dict[str, tuple[Line, ...]] = {
    "serve": (Line(("serve", "--help"), shows=False, json=False),),
    "get": (Line(("get", "n", "k")), Line(("get", "n", "none"), 1, shows=False)),
    "set": (
        Line(("set", "n", "k", "1", "--version", "7"), 1),
        Line(("set", "n", "new", "1", "--version", "0"), 0, False),
    ),
    "update": (Line(("update", "n", "l", "--append", TEXT)),),
    "transact": (Line(("transact", "/none"), 2, shows=False, json=False),),
    "delete": (Line(("delete", "n", "k", "--version", "7"), 1),),
    "list": (Line(("list",)), Line(("list", "n"))),
    "history": (Line(("history", "n", "k")),),
    "watch": (Line(("watch", "n", "k", "--timeout", "1")),),
    "claims": (Line(("claims",)),),
    "agents": (Line(("agents",)),),
    "claim": (Line(("claim", "held.py", "--agent", "bob"), 1),),
    "release": (Line(("release", "held.py", "--agent", "bob"), 1),),
    "status": (Line(("status", "held.py")),),
    "wait": (Line(("wait", "held.py", "--timeout", "0.1"), 1),),
    "run": (
        Line(("run", "--claim", "held.py", "true"), 1, json=False),
        Line(("run", "--claim", "other.py", "true"), shows=False, json=False),
    ),
    "commit": (Line(("commit", "-m", "x", "--agent", TEXT), 2, shows=False),),
    "check": (Line(("check", "held.py", "--agent", "bob", "--strict"), 1), Line(("check", "b.py"), shows=False)),
    "thread": (
        Line(("thread", "list")),
        Line(("thread", "read", "run")),
        Line(("thread", "data", "run")),
        Line(("thread", "history", "run", "plan")),
        Line(("thread", "read", "none"), 1, shows=False),
    ),
    "log": (Line(("log", "--refusals")), Line(("log", "--after", "0", "--follow", "--limit", "3"))),
    "replay": (Line(("replay", "--from", "2", "--state")), Line(("replay", "--to", "1"))),
    "evidence": (Line(("evidence", "-o", "DB.zip"), shows=False),),
    "diff": (Line(("diff", "n", "k", "v0")), Line(("diff", "n", "0", "now"))),
    "blame": (Line(("blame", "n", "k", "--fields")), Line(("blame", "n", "none"), 1, shows=False, json=False)),
    "revert": (
        Line(("revert", "--correlation", "none"), 1, shows=False),
        Line(("revert", "--session", "none", "--dry-run"), 1, shows=False),
    ),
    "activity": (Line(("activity",)),),
    "timeline": (Line(("timeline", TEXT)), Line(("timeline", TEXT, TEXT)), Line(("timeline", "none"), 1, shows=False)),
    "conflicts": (Line(("conflicts",), shows=False),),
    "collisions": (Line(("collisions",), shows=False),),
    "at": (
        Line(("at", "now")),
        Line(("at", "now", "get", "n", "k")),
        Line(("at", "now", "status", "held.py")),
        Line(("at", "now", "thread", "run")),
        Line(("at", "1", "get", "n", "none"), 1, shows=False),
    ),
    "rebuild": (Line(("rebuild",), shows=False),),
    "doctor": (Line(("doctor",), shows=False),),
    "checkpoint": (Line(("checkpoint",), shows=False),),
    "verify": (Line(("verify",), shows=False), Line(("verify", "--checkpoint", "DB"), 2, shows=False)),
    "redact": (
        Line(("redact", "n", "k@1", "--reason", "leaked")),
        Line(("redact", "n", "none@1", "--reason", "x"), 2, shows=False),
    ),
    "retention": (
        Line(("retention",), shows=False),
        Line(("retention", TEXT, "30d")),
        Line(("retention", TEXT, "x"), 2, shows=False),
    ),
    "backup": (Line(("backup", "."), shows=False), Line(("backup", "DB"), 2, shows=False)),
    "restore": (Line(("restore", "DB"), 2, shows=False),),
    "copy": (Line(("copy", "DB", "DB.copy"), shows=False), Line(("copy", "DB", "DB"), 2, shows=False)),
    "export": (Line(("export",), json=False),),
    "import": (Line(("import", "--agenthold", "DB"), 2, shows=False),),
    "token": (
        Line(("token", "list"), shows=False),
        Line(("token", "create", "--name", "ci", "--allow", "read:*"), shows=False),
        Line(("token", "rotate", "old"), shows=False),
        Line(("token", "revoke", "old"), shows=False),
    ),
    "relay": (Line(("relay", "--nats", "é://", "--once"), 2, shows=False),),
    "subscribe": (Line(("subscribe", "--nats", "é://"), 2, shows=False, json=False),),
    "init": (Line(("init", "--client", "claude-code", "--print"), shows=False, json=False),),
    "demo": (Line(("demo",), shows=False, json=False),),
    "up": (Line(("up", "--help"), shows=False, json=False),),
    "hook": (Line(("hook", "--help"), shows=False, json=False),),
    "completion": (Line(("completion", "bash"), shows=False, json=False),),
}
CASES = [line for lines in COMMANDS.values() for line in lines]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names and values that neither ASCII nor Latin-1 has."""
    path = tmp_path_factory.mktemp("template") / "state.db"
    with StateStore(path) as engine:
        engine.set("n", "k", {TEXT: TEXT}, updated_by=TEXT, reason=TEXT)
        engine.set(TEXT, TEXT, TEXT, updated_by=TEXT)
        engine.claim("held.py", agent=TEXT, note=TEXT)
        engine.claim(f"{TEXT}.py", agent="ann", note=TEXT)
        state = create_state({"plan": TEXT}, thread_id="run", store=engine, agent=TEXT)
        state.append_message({"type": "text", "role": "user", "content": TEXT})
        create_state({}, thread_id=TEXT, store=engine)
    assert run(path, ["token", "create", "--name", "old", "--allow", "read:*"], {}).returncode == 0
    return path


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "büro–日本"
    folder.mkdir(0o700)
    return Path(shutil.copy(template, folder / "state.db"))


def test_every_command_of_the_parser_has_an_encoding_test() -> None:
    assert set(COMMANDS) == set(build_parser()[1])


@pytest.mark.check
@pytest.mark.parametrize("encoding", ["ascii", *check("latin-1")])
@pytest.mark.parametrize("line", CASES, ids=[" ".join(line.words) for line in CASES])
def test_command_writes_in_an_encoding_that_lacks_characters(
    store: Path, line: Line, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)  # which is no worktree, whose name resources would have
    again = Path(shutil.copy(store, store.with_name("again.db")))
    for path, options in ((store, ()), (again, ("--json",)))[: 2 if line.json else 1]:
        out, err = io.BytesIO(), io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding=encoding))
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(err, encoding=encoding, errors="backslashreplace"))
        try:
            code = main(arguments(path, [*line.words, *options]))
        except SystemExit as ended:
            code = int(ended.code or 0)
        sys.stdout.flush()
        assert code == line.code
        if options and line.shows:
            read = [json.loads(it) for it in documents(out.getvalue().decode(encoding))]
            assert TEXT in " ".join(strings(read))


@pytest.mark.check
@pytest.mark.parametrize("words", [lines[-1].words for lines in COMMANDS.values()], ids=list(COMMANDS))
def test_command_succeeds_in_the_c_locale_with_a_non_ascii_folder(store: Path, words: tuple[str, ...]) -> None:
    done = run(store, list(words), LOCALE_C)
    assert b"Error" not in done.stderr, done.stderr.decode("ascii", "replace")


def run(store: Path, words: list[str], environ: dict[str, str]) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "holdlog", *arguments(store, words)],
        input=b"",
        capture_output=True,
        env={**os.environ, **environ},
        cwd=store.parent,
        timeout=60,
        check=False,
    )


def arguments(store: Path, words: list[str]) -> list[str]:
    named = [] if words[0] in ("copy", "demo", "up") else ["--db", str(store)]
    return [*named, *(word.replace("DB", str(store)) for word in words)]


def documents(text: str) -> list[str]:
    """One of many lines, or one in each line."""
    try:
        json.loads(text)
    except ValueError:
        return text.splitlines()
    return [text]


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from (name, *strings(each))
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value
