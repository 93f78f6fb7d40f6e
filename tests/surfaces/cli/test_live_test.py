"""`holdlog doctor --client NAME --live-test`, at a terminal."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdlog.adapters.cli.setup.live_test import TEST_FILE
from tests.support.command_line import run_command
from tests.support.processes.hosts import held, run_hook
from tests.support.terminal import END_OF_INPUT, INTERRUPT, Terminal, terminal
from tests.unit.operating_system.test_workspaces import git

pytestmark = pytest.mark.check

LIVE_TEST = ("holdlog", "doctor", "--client", "claude-code", "--live-test")


@pytest.fixture(autouse=True)
def set_up(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "init", "--client", "claude-code", "--yes")[0] == 0


@contextmanager
def begun_test() -> Iterator[Terminal]:
    """A live test that waits for an edit."""
    with terminal(*LIVE_TEST) as shown:
        shown.wait_for("Begin? [y/N]")
        shown.type("y\n")
        shown.wait_for("Waiting")
        yield shown


def claude(project: Path, event: str) -> str:
    """The output of the hook when Claude Code is about to write the file of the test, or has written it."""
    given = {"session_id": "s-1", "hook_event_name": event, "cwd": str(project)}
    tool = {"tool_name": "Write", "tool_input": {"file_path": str(project / TEST_FILE)}}
    return run_hook(project, given | tool).stdout


def test_agent_that_obeys_is_guarded(project: Path) -> None:
    with begun_test() as shown:
        assert f"{TEST_FILE} is held by live-test" in claude(project, "PreToolUse")
        claude(project, "Stop")
        assert shown.end() == 0
    assert "guarded: claude (version unknown) did not run a denied edit" in shown.shown
    assert held(project) == {}


def test_agent_that_ignores_the_denial_is_not_guarded(project: Path) -> None:
    with begun_test() as shown:
        assert '"deny"' in claude(project, "PreToolUse")
        (project / TEST_FILE).write_text("yes\n")
        claude(project, "PostToolUse")
        assert shown.end() == 1
    assert "bypassed: claude (version unknown) ran a denied edit" in shown.shown
    assert f"{TEST_FILE} was removed" in shown.shown
    assert not (project / TEST_FILE).exists()


def test_host_whose_hooks_do_not_run_is_reported(project: Path) -> None:
    with begun_test() as shown:
        (project / TEST_FILE).write_text("yes\n")
        assert shown.end() == 0
    assert f"{TEST_FILE} was written, so Claude Code did not guard it" in shown.shown
    assert not (project / TEST_FILE).exists()
    assert held(project) == {}


def test_interrupt_releases_the_file(project: Path) -> None:
    with begun_test() as shown:
        assert list(held(project)) == [TEST_FILE]
        shown.type(INTERRUPT)
        assert shown.end() == 0
    assert "unverified" in shown.shown
    assert held(project) == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_that_ends_the_test_releases_the_file(project: Path, number: signal.Signals) -> None:
    with begun_test() as shown:
        shown.send(number)
        assert shown.end() == 128 + number
    assert held(project) == {}


@pytest.mark.parametrize("answer", [END_OF_INPUT, "\n"], ids=["end", "default"])
def test_person_who_does_not_begin_claims_nothing(project: Path, answer: str) -> None:
    with terminal(*LIVE_TEST) as shown:
        shown.wait_for("Begin? [y/N]")
        shown.type(answer)
        assert shown.end() == 0
    assert "Traceback" not in shown.shown
    assert held(project) == {}


@pytest.mark.parametrize("client", ["vscode", "windsurf", "claude-desktop"])
def test_host_without_hooks_is_not_guarded(project: Path, capsys: pytest.CaptureFixture[str], client: str) -> None:
    code, _, err = run_command(capsys, "doctor", "--client", client, "--live-test")
    assert (code, "sets up no hooks" in err) == (2, True)
    assert "not guarded: holdlog init sets up no hooks" in run_command(capsys, "doctor", "--client", client)[1]


def test_file_that_the_policy_only_warns_about_is_not_tried(project: Path) -> None:
    (project / "holdlog.toml").write_text('[paths]\n"*.txt" = "warn"\n')
    git(project, "add", "holdlog.toml")
    git(project, "commit", "--message", "policy")
    with terminal(*LIVE_TEST) as shown:
        assert shown.end() == 2
    assert f"holdlog.toml:2 only warns about {TEST_FILE}" in shown.shown


def test_store_in_a_database_is_not_guarded(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDLOG_DB", "postgresql://nobody@127.0.0.1:1/none")
    code, out, _ = run_command(capsys, "doctor", "--client", "vscode")
    assert "not guarded: holdlog hook needs a store in a file" in out
    code, _, err = run_command(capsys, "doctor", "--client", "claude-code", "--live-test")
    assert (code, "needs a store in a file" in err) == (2, True)
