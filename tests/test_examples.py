"""The examples, as a reader runs them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdlog
from bench.contestants import find_python
from tests.support.programs import Done, environment, run

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


def run_example(name: str, *words: object, within: float = 100) -> Done:
    command = [sys.executable, EXAMPLES / name, *map(str, words)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=within, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("budget_allocation/without_holdlog.py", "Committed $15,000 of $10,000; the budget still shows $3,000."),
        ("budget_allocation/with_holdlog.py", "Committed $10,000 of $10,000, exactly."),
        ("order_processing/without_holdlog.py", "the reservation is gone"),
        ("order_processing/with_holdlog.py", "'total': 80.99}: reserved and discounted."),
    ],
)
def test_example_of_the_seed_prints_its_result(name: str, result: str) -> None:
    done = run_example(name)
    assert (done.code, done.err) == (0, "")
    assert result in done.out


@pytest.mark.rest
def test_two_agents_of_a_framework_change_one_file_one_after_the_other() -> None:
    done = run_example("agents.py")
    assert done.code == 0, done
    assert "previous_note: a section by ann" in done.out
    assert done.out.endswith("# Report\n## By ann\n## By bob\n\n")


def test_read_model_counts_the_writes_of_each_agent(tmp_path: Path) -> None:
    for value in (1, 2):
        assert run("set", "n", "k", str(value), "--updated-by", "ann", "--force", "--db", tmp_path / "s.db").code == 0
    assert run_example("read_model.py", tmp_path / "s.db", tmp_path / "w.db") == Done(0, "ann 2\n", "")


PEER = """
import sys
from agenthold.store import StateStore
store = StateStore(sys.argv[1])
store.set("campaign", "budget", {"remaining": 2000}, updated_by="print agent", expected_version=0)
store.set("orders", "order-1", None, updated_by="ann")
store.set("orders", "gone", 1, updated_by="ann")
store.delete("orders", "gone", deleted_by="ann")
store.set("claims", "report.md", {"holder": "ann"}, updated_by="ann")
"""


@pytest.mark.rest
@pytest.mark.skipif("UV" not in os.environ and shutil.which("uv") is None, reason="the peer is installed with uv")
def test_import_copies_the_current_values_of_a_file_of_agenthold_once(tmp_path: Path) -> None:
    subprocess.run([find_python("peer"), "-c", PEER, tmp_path / "a.db"], check=True)
    assert "examples/import_agenthold.py" in run("get", "n", "k", "--db", tmp_path / "a.db").err
    first = run_example("import_agenthold.py", tmp_path / "a.db", tmp_path / "s.db")
    assert first == Done(0, "2 copied, 0 there already, 0 refused\n", "")
    with holdlog.StateStore(tmp_path / "s.db") as store:
        budget = store.get("campaign", "budget")
        assert (budget.value, budget.version, budget.updated_by) == ({"remaining": 2000}, 1, "print agent")
        assert store.get("orders", "order-1").value is None
        assert len(store.events().events) == 2
    second = run_example("import_agenthold.py", tmp_path / "a.db", tmp_path / "s.db")
    assert second == Done(0, "0 copied, 2 there already, 0 refused\n", "")


@pytest.mark.slow
def test_team_does_all_its_tasks_and_loses_nothing() -> None:
    command = [sys.executable, "-m", "examples.team"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done
    assert done.stdout.count("\nok ") == 5


def test_every_example_is_in_the_list() -> None:
    page = (EXAMPLES / "README.md").read_text()
    names = {it.relative_to(EXAMPLES).as_posix() for it in EXAMPLES.rglob("*.py")} - {"team.py"}
    assert {name for name in names if f"`uv run examples/{name}" not in page} == set()
