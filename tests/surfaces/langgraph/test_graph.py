"""A real graph of LangGraph whose nodes remember in holdlog: in one process, in two at once, and after a restart."""

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore

from holdlog import ConflictError, StateStore
from holdlog.langgraph import HoldlogStore

pytestmark = pytest.mark.xdist_group("langgraph")  # importing it takes seconds: one worker pays

DOCUMENT = (Path(__file__).parents[3] / "docs" / "langgraph.md").read_text()

GRAPH = """
import asyncio, sys
from typing import TypedDict
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore
from holdlog import ConflictError
from holdlog.langgraph import HoldlogStore

class Said(TypedDict):
    user: str
    rounds: int
    heard: int

def remember(state: Said, *, store: BaseStore) -> dict:
    place = (("users", state["user"]), "visits")
    while True:
        found = store.get(*place)
        try:
            value = {"count": (found.value["count"] if found else 0) + 1}
            store.put(*place, value, expected_version=found.version if found else 0)
            return {"rounds": state["rounds"] - 1}
        except ConflictError:
            pass

def recall(state: Said, *, store: BaseStore) -> dict:
    return {"heard": store.get(("users", state["user"]), "visits").value["count"]}

def graph(store: HoldlogStore):
    steps = StateGraph(Said)
    steps.add_node(remember)
    steps.add_node(recall)
    steps.add_edge(START, "remember")
    steps.add_conditional_edges("remember", lambda state: "remember" if state["rounds"] else "recall")
    steps.add_edge("recall", END)
    return steps.compile(store=store)

def main() -> None:
    path, user, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with HoldlogStore(path, updated_by=f"graph-{sys.argv[4]}") as store:
        compiled = graph(store)
        print("ready", flush=True)
        sys.stdin.readline()
        end = compiled.invoke({"user": user, "rounds": rounds, "heard": 0}, {"recursion_limit": 1000})
        print(end["heard"], flush=True)

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "remembering.py"
    path.write_text(GRAPH)
    return path


@pytest.fixture(scope="module")
def made(program: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "remembering"}
    exec(compile(GRAPH, str(program), "exec"), names)
    return names


@pytest.mark.check
def test_graph_nodes_of_two_processes_count_exactly_and_the_count_persists(
    program: Path, made: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "state.db"
    words = [sys.executable, str(program), str(path), "ann", "25", "2"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        assert other.stdin is not None
        other.stdin.write("go\n")
        other.stdin.flush()
        with HoldlogStore(path, updated_by="graph-1") as store:
            asked = {"user": "ann", "rounds": 25, "heard": 0}
            heard = made["graph"](store).invoke(asked, {"recursion_limit": 1000})["heard"]
        theirs = int(other.stdout.readline())
    assert other.returncode == 0
    assert max(heard, theirs) == 50

    with StateStore(path) as state:
        history = state.history("users/ann", "visits")
    assert [past.value for past in reversed(history)] == [{"count": number} for number in range(1, 51)]
    assert {past.updated_by for past in history} == {"graph-1", "graph-2"}


@pytest.mark.check
def test_graph_node_with_an_outdated_version_conflicts_and_overwrites_nothing(made: dict[str, Any]) -> None:
    """Two runs of one graph in threads, whose nodes both read before either writes."""
    from langgraph.graph import START, StateGraph

    both_have_read = threading.Barrier(2, timeout=30)

    def note(state: Any, *, store: BaseStore) -> dict[str, Any]:
        found = store.get(("team",), "plan")
        both_have_read.wait()
        try:
            store.put(("team",), "plan", {"by": state["user"]}, expected_version=found.version)
        except ConflictError:
            return {"heard": 0}
        return {"heard": 1}

    with HoldlogStore(":memory:") as store:
        store.put(("team",), "plan", {"by": "nobody"})
        steps = StateGraph(made["Said"])
        steps.add_node("note", note)
        steps.add_edge(START, "note")
        compiled = steps.compile(store=store)
        ends: dict[str, int] = {}

        def run(user: str) -> None:
            ends[user] = compiled.invoke({"user": user, "rounds": 0, "heard": 0})["heard"]

        runs = [threading.Thread(target=run, args=(user,)) for user in ("ann", "bob")]
        for it in runs:
            it.start()
        for it in runs:
            it.join()
        (writer,) = [user for user, wrote in ends.items() if wrote]
        plan = store.get(("team",), "plan")
        assert plan is not None
        assert (plan.value, plan.version) == ({"by": writer}, 2)


@pytest.mark.check
async def test_graph_of_coroutines_uses_the_store(made: dict[str, Any], tmp_path: Path) -> None:
    from langgraph.graph import START, StateGraph

    async def remember(state: Any, *, store: BaseStore) -> dict[str, Any]:
        await store.aput(("users", state["user"]), "seen", {"round": state["rounds"]}, expected_version=0)
        return {"heard": len(await store.asearch(("users",)))}

    path = tmp_path / "state.db"
    with HoldlogStore(path) as store:
        steps = StateGraph(made["Said"])
        steps.add_node("remember", remember)
        steps.add_edge(START, "remember")
        compiled = steps.compile(store=store)
        for number, user in enumerate(("ann", "bob"), 1):
            assert (await compiled.ainvoke({"user": user, "rounds": 7, "heard": 0}))["heard"] == number
    with HoldlogStore(path) as again:
        assert [it.namespace for it in again.search(("users",))] == [("users", "bob"), ("users", "ann")]


def test_langgraph_document_runs_and_prints_what_its_comments_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)
    text = "\n".join(blocks)
    told = re.findall(r"print\(.*\)  # (.*)$", text, re.MULTILINE)
    assert len(told) >= 4
    monkeypatch.chdir(tmp_path)
    exec(compile(text, "langgraph.md", "exec"), {"__name__": "shown"})
    assert capsys.readouterr().out.splitlines() == told
