"""`holdlog run` as real processes: exclusion, exit codes, signals, kills and lost claims."""

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from holdlog.adapters.api.settings import Settings
from tests.processes.conftest import EVERY_STORE
from tests.support.processes.soundness import Place
from tests.support.processes.workers import PATIENCE, until
from tests.support.slow import check

MERGE = "custom://merge"
Run = Callable[..., "subprocess.Popen[str]"]

LANE = """
import os, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for word in ("enter", "leave"):
    os.write(log, f"{word} {os.getpid()} {os.environ['HOLDLOG_CLAIM_POSITION']}\\n".encode())
"""


@pytest.fixture
def run(place: Place, tmp_path: Path) -> Iterator[Run]:
    """Start `holdlog run` with these words, for the agent `ann` unless the words name another one."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: object, claim: str = MERGE, **options: Any) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "holdlog", "run", "--db", str(place), "--claim", claim, *map(str, words)]
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDLOG_")}
        environ["HOLDLOG_AGENT"] = "ann"
        started.append(subprocess.Popen(command, text=True, cwd=tmp_path, env=environ, **streams))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def end(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def python(code: str, *words: object) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", code, *map(str, words))


def noted(path: Path) -> Callable[[], str]:
    """What a command has written to a file."""
    return lambda: path.read_text() if path.exists() else ""


def last_end(path: Path, resource: str = MERGE) -> tuple[Any, ...]:
    with StateStore(path) as store:
        found: Any = store.status(resource)
        return found.status, found.previous_holder, found.previous_outcome, found.previous_note


def test_command_runs_with_its_streams_and_its_exit_code(run: Run, path: Path) -> None:
    code = (
        "import os, sys; print(sys.stdin.read(), *sorted(it for it in os.environ if it.startswith('HOLDLOG'))); exit(7)"
    )
    process = run(*python(code), stdin=subprocess.PIPE)
    out, err = process.communicate("given", timeout=PATIENCE)
    names = "HOLDLOG_AGENT HOLDLOG_CLAIM_POSITION HOLDLOG_CLAIM_VERSION"
    assert (process.returncode, out, err) == (7, f"given {names}\n", "")
    assert last_end(path) == ("available", "ann", "released", "failed with exit code 7")
    assert end(run("--outcome", "modified", "--", "true", claim="a.py")) == (0, "", "")
    assert last_end(path, "a.py") == ("available", "ann", "modified", "completed")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--", "no-such-command"), 127, "no-such-command: command not found; nothing was claimed"),
        ((), 2, "COMMAND: is missing"),
        (("--lease", "0", "true"), 2, "--lease: must be a finite number of seconds"),
        (("--claim", "src/*", "true"), 2, "--claim: must not contain * or ?"),
    ],
)
def test_command_that_cannot_run_is_refused_in_one_line(run: Run, words: tuple[str, ...], code: int, told: str) -> None:
    found, out, err = end(run(*words))
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(f"holdlog: {told}")


@pytest.mark.parametrize("name", ["script", "folder"])
def test_file_that_exists_and_cannot_be_run_is_refused_in_one_line(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "script").touch(0o644)
    (tmp_path / "folder").mkdir()
    found = end(run("--", tmp_path / name))
    assert found == (126, "", f"holdlog: {tmp_path / name}: cannot be run; nothing was claimed\n")


@pytest.mark.check
def test_file_that_is_no_program_is_refused_and_its_claim_released(run: Run, path: Path, tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"\0\1\2")
    (tmp_path / "program").chmod(0o755)
    code, _, err = end(run("--", tmp_path / "program"))
    assert (code, err.count("\n")) == (126, 1)
    assert last_end(path)[0] == "available"


@pytest.mark.check
def test_held_claim_is_refused_in_one_line_with_holder_and_remedy(run: Run, path: Path, tmp_path: Path) -> None:
    with StateStore(path) as store:
        store.claim(MERGE, agent="ben")
        code, out, err = end(run("--", "touch", tmp_path / "ran"))
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert err.startswith("holdlog: custom://merge is held by ben, since ")
        assert err.endswith("unless renewed; nothing was run; to queue for it, add --wait 600\n")
        code, _, err = end(run("--wait", "0.1", "--", "touch", tmp_path / "ran"))
        assert (code, err.count("\n"), "run it again later, or queue for longer: --wait 3600" in err) == (1, 1, True)
        assert store.board().queues == []
    assert not (tmp_path / "ran").exists()


@EVERY_STORE
def test_runs_of_one_claim_never_overlap(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log"
    started = [run("--wait", PATIENCE, *python(LANE, log)) for _ in range(5)]
    assert [end(it) for it in started] == [(0, "", "")] * 5
    lines = [line.split() for line in log.read_text().splitlines()]
    assert [word for word, _, _ in lines] == ["enter", "leave"] * 5
    assert [it[1:] for it in lines[::2]] == [it[1:] for it in lines[1::2]]
    positions = [int(position) for _, _, position in lines]
    assert positions == sorted(positions)
    assert len({process for _, process, _ in lines}) == 5


@pytest.mark.check
def test_several_claims_are_acquired_together_and_shared_ones_overlap(run: Run, path: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    waits = python("import sys; open(sys.argv[1], 'w').write('x'); sys.stdin.read()", ready)
    first = run("--claim", "custom://b", "--shared", *waits, stdin=subprocess.PIPE)
    until(noted(ready))
    assert end(run("--", "true", claim="custom://b"))[0] == 1
    assert end(run("--shared", "--", "true", claim="custom://b"))[0] == 0
    assert end(first)[0] == 0


SIGNALLED = """
import signal, sys
numbers = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
open(sys.argv[1], "w").write("ready")
print(signal.Signals(signal.sigwait(numbers)).name)
sys.exit(5)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, *check(signal.SIGHUP, signal.SIGINT, signal.SIGUSR1)])
def test_signal_is_passed_on_to_the_command(run: Run, path: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = run(*python(SIGNALLED, tmp_path / "ready"), start_new_session=True)
    until(noted(tmp_path / "ready"))
    process.send_signal(number)
    assert end(process) == (5, f"{number.name}\n", "")
    assert last_end(path)[0] == "available"


@pytest.mark.check
def test_command_ended_by_a_signal_gives_the_exit_code_of_a_shell(run: Run, path: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = run("--", "sh", "-c", f"echo x > {shlex.quote(str(ready))}; exec sleep 60")
    until(noted(ready))
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 128 + signal.SIGTERM
    assert last_end(path) == ("available", "ann", "released", "failed with exit code 143")


@pytest.mark.check
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_while_it_waits_leaves_the_queue(run: Run, path: Path, tmp_path: Path, number: signal.Signals) -> None:
    with StateStore(path) as store:
        store.claim(MERGE, agent="ben")
        process = run("--wait", PATIENCE, "--", "touch", tmp_path / "ran")
        until(lambda: store.board().queues)
        process.send_signal(number)
        assert end(process)[0] == 128 + number
        assert store.board().queues == []
    assert not (tmp_path / "ran").exists()


COUNTS = """
import os, signal, sys, time
if sys.argv[3] == "own group":  # which does not get what the terminal sends
    os.setpgid(0, 0)
signal.signal(signal.SIGINT, lambda *_: open(sys.argv[2], "a").write("x"))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open(sys.argv[1], "w").write("ready")
while True:
    time.sleep(0.01)  # a signal that comes just before pause() would not end it
"""


@pytest.mark.check
@pytest.mark.parametrize(("group", "interrupts"), [("same group", "x"), ("own group", "")])
def test_interrupt_from_the_terminal_is_not_passed_on(group: str, interrupts: str, path: Path, tmp_path: Path) -> None:
    ready, count = tmp_path / "ready", tmp_path / "count"
    words = ("run", "--db", str(path), "--claim", MERGE, *python(COUNTS, ready, count, group))
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-m", "holdlog", *words])
    until(noted(ready))
    os.write(terminal, b"\x03")
    assert b"^C" in os.read(terminal, 100)  # the echo of the terminal follows the signal
    if interrupts:
        until(noted(count))
    os.kill(process, signal.SIGTERM)  # Python handles the signal with the lower number, the interrupt, first
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert noted(count)() == interrupts
    os.close(terminal)


@pytest.mark.check
@EVERY_STORE
def test_lost_claim_is_reported_at_once_and_fails_a_successful_command(run: Run, place: Place, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    waits = python("import sys; open(sys.argv[1], 'w').write('x'); sys.stdin.read()", ready)
    process = run(*waits, stdin=subprocess.PIPE)
    until(noted(ready))
    force = ("release", MERGE, "--force", "--reason", "ann went home", "--db", str(place))
    subprocess.run([sys.executable, "-m", "holdlog", *force], check=True, capture_output=True)
    assert process.stderr is not None
    warning = process.stderr.readline()
    assert warning.startswith("holdlog: warning: you lost custom://merge: it was taken from you")
    assert process.poll() is None
    code, _, err = end(process)
    assert (code, err) == (1, "holdlog: custom://merge was not claimed until the command ended; check what it did\n")


def test_claim_of_a_killed_run_lasts_while_its_command_does(run: Run, path: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = "import sys; open(sys.argv[1], 'w').write('x'); sys.stdin.read()"
    given, kept = os.pipe()
    process = run(*python(code, ready), stdin=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(given)
    until(noted(ready))
    process.kill()
    process.wait()
    with StateStore(path, settings=Settings(grace=0.5)) as store:
        held: Any = store.status(MERGE)
        assert (held.status, held.holder_connected) == ("claimed", True)
        assert end(run("--", "true"))[0] == 1  # under the same name
        os.close(kept)
        got: Any = store.claim(MERGE, agent="ben", wait_seconds=PATIENCE)
        assert (got.status, got.previous_outcome, got.previous_holder) == ("claimed", "expired", "ann")


@pytest.mark.check
def test_claim_is_renewed_while_the_command_runs(run: Run, path: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    waits = python("import sys; open(sys.argv[1], 'w').write('x'); sys.stdin.read()", ready)
    process = run("--lease", "1", *waits, stdin=subprocess.PIPE)
    until(noted(ready))
    with StateStore(path) as store:
        assert store.wait(MERGE, timeout_seconds=2.5).status == "timeout"
    assert end(process)[0] == 0


@pytest.mark.check
def test_options_of_the_command_are_its_own(run: Run, path: Path) -> None:
    show = "import json, sys; print(json.dumps(sys.argv[1:]))"
    for words in (("--", sys.executable, "-c", show), (sys.executable, "-c", show)):
        code, out, _ = end(run(*words, "--claim", "x", "--", "--help"))
        assert (code, json.loads(out)) == (0, ["--claim", "x", "--", "--help"])
