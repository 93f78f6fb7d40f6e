"""Claims on the command line, as a person uses them: what is printed, and with which exit code."""

import json
import os
import re
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdlog import StateStore
from holdlog.adapters.api.request import CommandRequest
from holdlog.adapters.cli.main import main
from holdlog.adapters.cli.texts import since
from tests.support.commands import until
from tests.support.wire import Wire
from tests.unit.operating_system.test_workspaces import repository, worktree


class Ran(str):
    """What was printed, with the exit code."""

    __slots__ = ("code",)
    code: int


class Terminal:
    def __init__(self, db: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.db = db
        self._capsys = capsys

    def __call__(self, line: str, note: str | None = None) -> Ran:
        return self.words(*line.split(), *(() if note is None else ("--note", note)))

    def words(self, *words: str) -> Ran:
        try:
            code = main([*words, "--db", str(self.db)])
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = self._capsys.readouterr()
        ran = Ran(out + err)
        ran.code = code
        return ran


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.delenv("HOLDLOG_AGENT", raising=False)
    return Terminal(tmp_path / "state.db", capsys)


def test_command_line_claims_refuses_the_second_agent_and_releases(run: Terminal) -> None:
    assert run("claim custom://db --agent ann", note="five minutes") == "claimed custom://db (version 1)\n"
    busy = run("claim custom://db --agent ben")
    assert busy.code == 1
    assert re.search(r"custom://db is held by ann since .* \(\d s\): five minutes", busy)
    assert "holdlog claim again with --wait 30" in busy
    again = run("claim custom://db --agent ann")  # a session of its own, as each command is
    assert (again.code, again.count("\n")) == (0, 2)
    assert "Work may be half done" in again
    assert run("release custom://db --agent ann --outcome modified", note="new index").code == 0
    claimed = run("claim custom://db --agent ben")
    assert re.search(r"claimed custom://db \(version 4\) \(modified by ann at .*: new index\)", claimed)
    assert "Read it again" in claimed


def test_second_claimant_in_another_worktree_sees_the_holder(
    run: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    here = repository(tmp_path / "repo")
    there = worktree(here, "../feature")
    for tree in (here, there):
        (tree / "src").mkdir()
    monkeypatch.chdir(here)
    assert run("claim src/a.py --agent ann").count("\n") == 1
    monkeypatch.chdir(there)
    told = "also claimed in workspace main by ann"
    hint = "Another worktree has a claim on this path. It does not block you; coordinate before you merge."
    assert run("status src/a.py").splitlines()[1:] == [told, hint]
    assert run("claim src/a.py --agent ben").splitlines()[1:] == [told, hint]
    ben = "claim src/a.py --agent ben --session s1"
    half_done = "A former session with your name held it. Work may be half done: look before you edit."
    assert run(ben).splitlines()[1:] == [told, f"{half_done} {hint}"]
    assert run(ben).splitlines()[1:] == [told]
    monkeypatch.chdir(here)
    assert run("status src/a.py").splitlines()[1:] == ["also claimed in workspace feature by ben", hint]


def test_claim_command_takes_several_resources_or_the_first_free_one(run: Terminal) -> None:
    assert run("claim custom://a --agent ann --also custom://b").startswith("claimed custom://a, custom://b (")
    assert run("claim custom://b --agent ben --or custom://a --or custom://c").startswith("claimed custom://c (")
    assert run("claim custom://b --agent ben --also custom://c").code == 1
    assert run("release custom://b --agent ann --also custom://a") == "released custom://b, custom://a\n"
    assert run("release --agent ann") == "already_free: nothing was held\n"


def test_claim_command_lists_other_holders_of_a_share(run: Terminal) -> None:
    for name in ("ann", "ben"):
        assert run(f"claim custom://a --shared --agent {name}").code == 0
    assert run("claims").count("shared") == 2
    assert run("claims --agent ben").count("custom://a") == 1


def test_claim_command_takes_a_mode(run: Terminal) -> None:
    assert run("claim custom://a --mode shared --agent ann").code == 0
    assert run("claim custom://a --shared --agent ben").code == 0
    assert run("claim custom://a --mode exclusive --agent cleo").code == 1
    assert "custom://a is held by ann since" in (held := run("status custom://a"))
    assert ", shared" in held
    refused = run("claim custom://a --shared --mode exclusive --agent ann")
    assert (refused.code, "not allowed with argument" in refused) == (2, True)


def test_claims_command_shows_note_session_and_mode_unless_default(run: Terminal) -> None:
    run("claim custom://a --agent ann")
    (plain,) = run("claims").splitlines()
    assert re.fullmatch(r"custom://a  ann  for \d s  expires in 4 min \d+ s, not connected", plain)
    run("claim custom://b --agent ben --shared --session s1", note="five minutes")
    first, second = run("claims").splitlines()
    assert "session" not in first
    assert re.fullmatch(r'custom://b  ben  shared  for \d s .* "five minutes"  session option-[0-9a-f]{6}', second)
    rows = json.loads(run("claims --json"))["claims"]
    assert [(row["mode"], row.get("holder_note")) for row in rows] == [("exclusive", None), ("shared", "five minutes")]
    assert "sessions" not in json.loads(run("claims --json"))


def test_long_note_is_cut_in_the_table_and_whole_in_the_status(run: Terminal) -> None:
    note = "word " * 60 + "end"
    run("claim custom://a --agent ann", note=note)
    assert "…" in run("claims")
    assert note not in run("claims")
    assert note in run("status custom://a")


def test_status_without_a_resource_is_the_board(run: Terminal) -> None:
    run("claim custom://a --agent ann")
    run("claim custom://b --agent ben")
    assert run("status").splitlines()[0].startswith("custom://a  ann  ")
    assert [row["resource"] for row in json.loads(run("status --json"))["claims"]] == ["custom://a", "custom://b"]
    assert [row["resource"] for row in json.loads(run("status --json --agent ben"))["claims"]] == ["custom://b"]
    assert [row["resource"] for row in json.loads(run("status --json --after custom://a"))["claims"]] == ["custom://b"]


@pytest.mark.parametrize(
    ("line", "option"),
    [("status --version 1", "--version"), ("status a --agent ann", "--agent"), ("status a --after b", "--after")],
)
def test_status_refuses_options_that_do_not_apply(run: Terminal, line: str, option: str) -> None:
    run("claim custom://a --agent ann")
    refused = run(line)
    assert (refused.code, refused.count("\n")) == (2, 1)
    assert refused.startswith(f"holdlog: {option}: ")


def test_session_is_informed_once_of_its_lost_claims(run: Terminal) -> None:
    run("claim custom://a --agent ann --session s1")
    run("release custom://a --force --reason stuck --agent boss")
    run("claim custom://a --agent ben")
    told = run("claim custom://b --agent ann --session s1")
    assert told.code == 0
    assert "holdlog: you lost custom://a: it was taken from you: stuck; ben holds it now\n" in told
    assert "lost" not in run("claim custom://c --agent ann --session s1")


def test_lease_of_the_claim_command_has_the_given_duration(run: Terminal) -> None:
    run("claim custom://a --agent ann --lease 7200")
    assert re.search(r"custom://a +ann +for \d s +expires in 1 h 59 min", run("claims"))
    for wrong in ("0", "86401", "nan", "long"):
        assert run(f"claim custom://a --agent ann --lease {wrong}").code == 2


def test_status_command_shows_whether_a_version_is_current(run: Terminal) -> None:
    assert run("claim custom://a --agent ann").code == 0
    assert run("status custom://a --version 1").endswith("; this version is current\n")
    assert run("status custom://a --version 7").endswith("; this version is not current\n")
    assert "current" not in run("status custom://a")


def test_waiting_claim_command_queues_and_is_granted(run: Terminal) -> None:
    run("claim custom://a --agent ann")
    served: list[int] = []
    waiter = threading.Thread(
        target=lambda: served.append(main(["claim", "custom://a", "--agent=ben", "--wait=60", f"--db={run.db}"]))
    )
    waiter.start()
    with StateStore(run.db) as store:
        until(lambda: bool(store.board().queues))
    assert re.search(r"custom://a +ann .*\n +1\. in queue +ben +for \d s", run("claims"))
    assert re.search(r"held by ann .*; 1 in the queue", run("status custom://a"))
    assert "released custom://a (version 3); ben, next in the queue, holds it\n" in run(
        "release custom://a --agent ann"
    )
    waiter.join()
    assert served == [0]
    assert "custom://a is held by ben" in run("status custom://a")


def test_person_takes_a_claim_by_force_with_a_reason(run: Terminal) -> None:
    run("claim custom://a --agent ann")
    for incomplete in ("release custom://a --force", "release --force"):
        refused = run(incomplete)
        assert (refused.code, "--reason" in refused) == (2, True)
    nobody = run("release --force --reason stuck --agent ben")
    assert nobody.code == 0
    assert "holdlog: no agent of this name holds anything: ben; to list agents: holdlog agents\n" in nobody
    assert "custom://a is held by ann" in run("status custom://a")
    taken = run("release custom://a --force --reason stuck --agent boss")
    assert taken == "released custom://a (version 2)\nholdlog: boss took it from ann\n"
    told = run("release custom://a --agent ann")
    assert (told.code, "was taken from you: stuck" in told) == (1, True)
    assert "(taken from ann at" in run("claim custom://a --agent ben")
    assert run("release custom://never --force --reason stuck").code == 1


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("claim a --or ../b", "--or"),
        ("claim a --or b --also c", "argument --also"),
        ("claim a --also ../b", "--also"),
        ("claim a --lease 0", "--lease"),
        ("claim a --wait -1", "--wait"),
        ("claim a --agent \n", "--agent"),
        ("claim ../a", "RESOURCE"),
        ("release a --outcome moved", "--moved-to"),
        ("release a --moved-to b", "--moved-to"),
        ("release --also b", "--also"),
        ("release a --reason stuck", "--reason"),
        ("release a --force --reason \n", "--reason"),
        ("release a --force --reason stuck --outcome modified", "--force"),
        ("release a --force --reason stuck --also b", "--force"),
        ("status a --version -1", "--version"),
        ("wait a --timeout -1", "--timeout"),
        ("claims --agent \n", "--agent"),
        ("set n k 1 --version -1", "--version"),
        ("set n k 1 --version 0 --by \n", "--by"),
        ("delete n k --version 0 --by \n", "--by"),
        ("history n k --limit 0", "--limit"),
        ("get \n k", "NAMESPACE"),
    ],
)
def test_bad_argument_is_reported_by_its_command_line_name(run: Terminal, line: str, option: str) -> None:
    run("claim a --agent ann")
    refused = run.words(*(" " if word == "\n" else word for word in line.split(" ")))
    assert (refused.code, refused.count("\n")) == (2, 1)
    assert refused.partition(": ")[2].startswith(f"{option}: "), refused


@pytest.mark.check
def test_agents_command_lists_holders_and_connected_agents(run: Terminal) -> None:
    run("claim custom://a --agent ann")
    server = Wire("-m", "holdlog", "--db", run.db).open()
    listed = run("agents")
    assert re.search(r"ann +not connected +1 claim +last call \d+ s ago", listed)
    assert re.search(
        rf"process {server.process.pid} +connected +mcp stdio, t 1 +{re.escape(os.getcwd())} +0 claims", listed
    )
    server.send(server.call("holdlog_claim", resource="custom://b", agent="ben"))
    assert server.answer()["result"]["structuredContent"]["status"] == "claimed"
    listed = run("agents")
    assert re.search(
        rf"ben +connected +process {server.process.pid}, mcp stdio, t 1 +{re.escape(os.getcwd())} +1 claim", listed
    )
    assert listed.count(f"process {server.process.pid}") == 1
    assert [it["agent"] for it in json.loads(run("agents --json --agent ben"))["agents"]] == ["ben"]
    server.close()


def test_registered_names_appear_on_the_board_and_in_the_list_of_claims(run: Terminal) -> None:
    with StateStore(run.db) as store:
        store.register("ann", name="Ann of tests", model="gpt-x", purpose="tests")
        store.claim("custom://a", agent="ann")
        (held,) = store.board().claims
        assert (held.agent_name, held.agent_model) == ("Ann of tests", "gpt-x")
        assert re.search(r"custom://a +ann .*Ann of tests, gpt-x", run("claims"))
        (listed,) = json.loads(run("claims --json"))["claims"]
        assert (listed["agent_name"], listed["agent_model"]) == ("Ann of tests", "gpt-x")
        assert "Ann of tests, gpt-x, tests" in run("agents")


def test_claim_commands_do_not_create_a_missing_store(run: Terminal) -> None:
    for line in ("claims", "agents", "status custom://a"):
        assert run(line).code == 1
    assert not run.db.exists()


def test_names_that_mix_scripts_are_marked_on_the_board_and_in_the_log(run: Terminal) -> None:
    for resource, agent in (("a.py", "ann"), ("custom://b", "\u0430nn"), ("custom://m\u0435rge", "ben")):
        assert run(f"claim {resource} --agent {agent}").startswith("claimed")
    board = run("claims").splitlines()
    assert sorted(line.count("(mixed scripts)") for line in board) == [0, 1, 1]
    assert any(line.startswith("custom://b") and "  \u0430nn (mixed scripts)  " in line for line in board)
    assert any(line.startswith("custom://m\u0435rge (mixed scripts)  ben") for line in board)
    rows = json.loads(run("claims --json"))["claims"]
    assert [it["resource"] for it in rows if it.get("mixed_scripts")] == ["custom://b", "custom://m\u0435rge"]
    assert [line.count("(mixed scripts)") for line in run("log").splitlines()] == [0, 1, 1]
    assert [json.loads(line).get("mixed_scripts") for line in run("log --json").splitlines()] == [None, True, True]
    assert run("agents").count("(mixed scripts)") == 1
    assert "is held by \u0430nn (mixed scripts) since" in run("status custom://b")


def test_stored_names_with_invisible_characters_are_escaped(run: Terminal) -> None:
    with StateStore(run.db) as store:
        command = store._engine.requests.claims.claim("custom://merge", "ann").command
        old = command.model_copy(update={"resource": "custom://merge\u3164", "agent": "ann\u2800"})
        store._engine.write(CommandRequest(old, lambda outcome: outcome), store._engine.caller)
    for line in (run("claims"), run("log")):
        assert r"custom://merge\u3164" in line
        assert r"ann\u2800" in line
    refused = run.words("release", "custom://merge\u3164", "--agent", "ann\u2800")
    assert (refused.code, "U+2800 BRAILLE PATTERN BLANK" in refused) == (2, True)
    taken = run.words("release", "custom://merge\u3164", "--agent", "boss", "--force", "--reason", "an old name")
    assert taken.startswith("released")


def test_name_that_protects_nothing_is_refused_in_one_line(
    run: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    here = repository(tmp_path / "repo")
    (here / "a.py").touch()
    monkeypatch.chdir(here)
    for resource, remedy in (("src/*.py", "src/"), ("a.py:10-20", "whole file"), ("custom:merge", "custom://merge")):
        refused = run(f"claim {resource} --agent ann")
        assert (refused.code, refused.count("\n")) == (2, 1)
        assert remedy in refused
    assert "also" in run.words("claim", "a.py, b.py", "--agent", "ann")
    claimed = run("claim merge --agent ann").splitlines()
    assert claimed[1].endswith("release this and claim custom://merge.")
    moved = run("release merge --agent ann --outcome moved --moved-to ./merge")
    assert (moved.code, "--moved-to: must" in moved) == (2, True)


@pytest.mark.parametrize(
    ("ahead", "shown"), [(0, r"since [\d:.]+ UTC \(0 s\)"), (7200, "since before a clock was set")]
)
def test_time_of_a_claim_is_never_in_the_future(ahead: int, shown: str) -> None:
    assert re.match(shown, since(datetime.now(UTC) + timedelta(seconds=ahead), 0.0))
