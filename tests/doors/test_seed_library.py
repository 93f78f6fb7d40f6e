"""agenthold's library page and its two examples: programs of their own, with the import's name changed alone."""

import subprocess
import sys
from pathlib import Path

import holdlog
from tests.support.programs import environment, python

SEEDS = Path(__file__).parent / "seeds"


def program(name, before=""):
    text = (SEEDS / name).read_text().replace("from agenthold.store import", "from holdlog import")
    return before + text.replace("from agenthold.exceptions import", "from holdlog import")


def test_program_of_the_library_page_prints_value_and_version(work):
    assert python(program("agenthold_library.txt"), cwd=work) == ["received", "1"]
    assert (work / "state.db").is_file()


AGENT = """
def do_expensive_work():
    print("read", flush=True)
    input()

def compute_new_value(remaining):
    global spent
    spent = min({wanted}, remaining)
    return remaining - spent
"""


def test_retry_loop_of_the_page_never_overcommits_a_budget(work):
    """Both processes read 10,000 before either writes; the second reads again what is left."""
    store = holdlog.StateStore(work / "state.db")
    store.set("campaign", "budget", 10_000, updated_by="person")
    pipe = subprocess.PIPE
    agents = []
    for wanted in (8_000, 7_000):
        text = program("agenthold_retry.txt", AGENT.replace("{wanted}", str(wanted))) + "\nprint(spent)"
        command = [sys.executable, "-c", text]
        agents.append(subprocess.Popen(command, cwd=work, stdin=pipe, stdout=pipe, text=True, env=environment()))
    assert [agent.stdout.readline() for agent in agents] == ["read\n"] * 2
    spent = [int(agent.communicate("go\n")[0]) for agent in agents]
    assert spent == [8_000, 2_000]
    assert [it.value for it in store.history("campaign", "budget")] == [0, 2_000, 10_000]
    store.close()


ORDER = """
import threading, sys
from holdlog import ConflictError, StateStore
store = StateStore("./state.db")
store.set("orders", "1", {"status": "new", "total": 100.0}, updated_by="shop")
have_read = threading.Barrier(2)
conflicts = []

def change(agent, edit):
    record = store.get("orders", "1")
    have_read.wait()
    while True:
        try:
            return store.set("orders", "1", edit(record.value), updated_by=agent, expected_version=record.version)
        except ConflictError as conflict:
            conflicts.append((agent, conflict.detail.actual_updated_by, conflict.detail.actual_version))
            record = store.get("orders", "1")

agents = [
    threading.Thread(target=change, args=("inventory", lambda order: order | {"status": "reserved"})),
    threading.Thread(target=change, args=("pricing", lambda order: order | {"total": order["total"] * 0.9})),
]
for agent in agents: agent.start()
for agent in agents: agent.join()
record = store.get("orders", "1")
assert record.version == 3
assert {conflicts[0][0], conflicts[0][1]} == {"inventory", "pricing"} and conflicts[0][2] == 2
print(len(conflicts), record.value["status"], record.value["total"])
"""


def test_two_agents_update_one_order_and_lose_nothing(work):
    assert python(ORDER, cwd=work) == ["1 reserved 90.0"]


def test_store_may_be_given_as_text_path_or_context_manager(work):
    text = """
import pathlib, holdlog
with holdlog.StateStore(pathlib.Path("a.db")) as store:
    store.set("n", "k", 1, updated_by="ann")
with holdlog.StateStore("a.db") as store:
    print(store.get("n", "k").value)
"""
    assert python(text, cwd=work) == ["1"]
