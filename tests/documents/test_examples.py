"""Each example runs as a process of its own, comes out as it tells, and shows the figures that it is there for."""

import subprocess
import sys
from pathlib import Path

import pytest

from examples.threads import network
from holdlog import StateStore, create_state
from tests.support.environments import UV, run
from tests.support.servers import nats_server
from tests.support.slow import check

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

TOLD = {
    "budget_allocation/without_holdlog.py": ("Committed $15,000 of $10,000", "No error, no warning"),
    "budget_allocation/with_holdlog.py": (
        "print-agent   conflict  search-agent wrote version 2",
        "Committed $10,000 of $10,000",
        "version 2  search-agent  $2,000 remaining",
        "version 3  print-agent   $0 remaining",
    ),
    "order_processing/without_holdlog.py": (
        "The order is {'status': 'received', 'reserved': False, 'total': 80.99}",
        "No error, no warning",
    ),
    "order_processing/with_holdlog.py": (
        "pricing-agent    conflict  inventory-agent wrote version 2",
        "The order is {'status': 'processing', 'reserved': True, 'total': 80.99}",
        "version 3  pricing-agent",
    ),
    "claims/two_agents.py": (
        "busy, held by writer-1",
        "is told   writer-2 waits",
        "granted to writer-2",
        "in line   claimed; modified before: section 2 is new",
    ),
    "nats/reviewer.py": (
        "reviewer  reads  src/report.md: section 2 is new (writer)",
        "reviewer  reads  src/index.md: two links (writer)",
    ),
    "threads/network.py": (
        "the run died: ConnectionError: the model does not answer; another process:",
        "goes on with 2 results and index.html, style.css",
        "reviewer   conflict: files changed since; reads again",
        "reviewer   reads index.html: <h1>Hello</h1>",
        "history    a page that says hello | an HTML file and its style | index.html is there | approved: ",
        "fixer: {'index.html': '<h1>Hello</h1>', 'style.css': 'h1 { color: teal }'}",
    ),
    "eventsourcing/read_model.py": (
        "campaign  bob  1 times, last 8000",
        "campaign  bob  2 times, last 6000",
        'orders  ann  1 times, last {"status":"paid"}',
    ),
    "claims/slow_agent.py": (
        "in line  claimed; expired before, of slow",
        "writes   fenced, held by next",
        "The notes are 'by next'.",
    ),
}


AGENTS = "agents/two_agents.py"
"""Runs in an environment that uv makes from its first lines, because it needs a framework."""


def test_every_example_has_a_test() -> None:
    assert {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("*/*.py")} == {*TOLD, AGENTS}


QUICK = ("order_processing/with_holdlog.py", "claims/two_agents.py")


@pytest.mark.parametrize("example", [*QUICK, *check(*(it for it in TOLD if it not in QUICK))])
def test_example_prints_the_documented_output(example: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    for words in TOLD[example]:
        assert words in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.check
@pytest.mark.skipif(UV is None, reason="the environment is made with uv")
def test_agents_of_a_framework_edit_one_file_one_after_the_other(tmp_path: Path) -> None:
    printed = run(UV, "run", "--quiet", EXAMPLES / AGENTS, cwd=tmp_path).splitlines()
    assert [line for line in printed if line.startswith("bob")] == [
        'bob  claim: {"status": "busy", "held_by": "ann"}',
        'bob  claim: {"status": "claimed", "previous_note": "a section by ann"}',
        "bob  reads the file",
        "bob  writes the file",
        'bob  release: {"status": "released"}',
    ]
    assert printed.index('ann  release: {"status": "released", "granted_to": "bob"}') < printed.index(
        "bob  reads the file"
    )
    assert [line for line in printed if line][-3:] == ["# Report", "## By ann", "## By bob"]
    assert not list(tmp_path.iterdir())


def test_crashed_example_run_keeps_its_work_and_the_next_run_continues(tmp_path: Path) -> None:
    place = tmp_path / "state.db"
    with pytest.raises(ConnectionError):
        network.first_run(place)
    with StateStore(place) as store:
        left = create_state(network.Work, thread_id=network.THREAD, store=store)
        assert [result.agent_name for result in left.results] == ["planner", "coder"]
        assert left.data == network.Work(goal=network.GOAL, plan=list(network.DRAFTS), files=network.DRAFTS)
    assert network.second_run(place)


@pytest.mark.check
def test_reviewer_example_names_what_it_waits_for_and_then_continues(tmp_path: Path) -> None:
    with nats_server(tmp_path / "nats") as server, StateStore(tmp_path / "state.db") as store:
        store.claim("src/a.md", agent="ann")
        store.release("src/a.md", agent="ann", outcome="modified", note="two links")
        command = [sys.executable, "-u", str(EXAMPLES / "nats/reviewer.py"), server.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reviewer:
            assert reviewer.stdout is not None
            assert reviewer.stderr is not None
            try:
                told = "there is no stream holdlog_team yet; start: holdlog relay --nats-name team\n"
                assert reviewer.stderr.readline() == told
                words = [
                    "relay",
                    "--once",
                    "--db",
                    str(tmp_path / "state.db"),
                    "--nats",
                    server.url,
                    "--nats-name",
                    "team",
                ]
                subprocess.run([sys.executable, "-m", "holdlog", *words], check=True, capture_output=True, timeout=60)
                assert reviewer.stdout.readline() == "reviewer  reads  src/a.md: two links (ann)\n"
            finally:
                reviewer.terminate()
            assert reviewer.stderr.read() == ""
