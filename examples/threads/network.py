"""Three agents build a page on one thread that is kept: a run dies in the middle, another process goes on, and a second
network changes a file while the reviewer reads it. The agents are scripts: a model would stand where they decide.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from holdlog import (
    AgentResult,
    DataConflictError,
    State,
    StateStore,
    TextMessage,
    ToolCall,
    ToolResultMessage,
    create_state,
)

GOAL = "a page that says hello"
THREAD = "hello-page"
DRAFTS = {"index.html": "<h1>Helo</h1>", "style.css": "h1 { color: teal }"}


class Work(BaseModel):
    """What the agents share."""

    goal: str = ""
    plan: list[str] = []
    files: dict[str, str] = {}
    approved: bool = False


Agent = Callable[[State[Work]], AgentResult]


def say(who: str, what: str) -> None:
    sys.stdout.write(f"{who:<10} {what}\n")
    sys.stdout.flush()


# --- the tool: the same get, change, set that an AgentKit tool does on network.state.kv


def write_files(state: State[Work], files: list[dict[str, str]]) -> ToolResultMessage:
    """Write code with the given filenames."""
    kept = state.kv.get("files") or {}
    for file in files:
        kept[file["filename"]] = file["content"]
    state.kv.set("files", kept)
    call = ToolCall(id=f"write-{len(state.results)}", name="write_files", input={"files": files})
    return ToolResultMessage(tool=call, content=f"{len(files)} written")


# --- the agents


def spoken(agent: str, text: str, *calls: ToolResultMessage) -> AgentResult:
    said = TextMessage(role="assistant", content=text)
    return AgentResult(agent_name=agent, output=[said], tool_calls=list(calls))


def planner(state: State[Work]) -> AgentResult:
    state.data.plan = list(DRAFTS)
    say("planner", f"plans {', '.join(state.data.plan)}")
    return spoken("planner", "an HTML file and its style")


def coder(state: State[Work]) -> AgentResult:
    name = next(it for it in state.data.plan if it not in state.data.files)
    call = write_files(state, [{"filename": name, "content": DRAFTS[name]}])
    say("coder", f"writes {name}")
    return spoken("coder", f"{name} is there", call)


def reviewer(state: State[Work], meanwhile: Callable[[], None] = lambda: None) -> AgentResult:
    """Approves what it has read, and nothing else: who changes a file while it reads makes it read again."""
    while True:
        page = state.data.files["index.html"]
        say("reviewer", f"reads index.html: {page}")
        meanwhile()
        try:
            state.data.approved = True
        except DataConflictError as conflict:
            say("reviewer", f"conflict: {', '.join(conflict.detail.changed_keys)} changed since; reads again")
            state.refresh()
        else:
            say("reviewer", "approves it")
            return spoken("reviewer", f"approved: {page}")


# --- the network


def route(work: Work) -> str | None:
    """Whose turn it is, by what the agents share."""
    if not work.plan:
        return "planner"
    if any(name not in work.files for name in work.plan):
        return "coder"
    return None if work.approved else "reviewer"


def run(state: State[Work], agents: dict[str, Agent]) -> None:
    """Each result is kept before the next agent has its turn; `agent` stands in the log beside what it changes."""
    while (turn := route(state.data)) is not None:
        state.agent = turn
        state.append_result(agents[turn](state))


# --- the story


def first_run(place: Path) -> None:
    """Dies in the coder's second turn, after its tool wrote."""

    def failing(state: State[Work]) -> AgentResult:
        result = coder(state)
        if len(state.data.files) == len(DRAFTS):
            raise ConnectionError("the model does not answer")
        return result

    with StateStore(place) as store:
        state = create_state(Work(goal=GOAL), thread_id=THREAD, store=store)
        state.append_message(TextMessage(role="user", content=GOAL))
        run(state, {"planner": planner, "coder": failing, "reviewer": reviewer})


def fix_typo(place: Path) -> None:
    """The second network, on the same thread: no reviewer knows of it."""
    with StateStore(place) as store:
        state = create_state(Work, thread_id=THREAD, store=store, agent="fixer")
        write_files(state, [{"filename": "index.html", "content": "<h1>Hello</h1>"}])
        say("fixer", "on the same thread, corrects index.html")


def second_run(place: Path) -> bool:
    """Whether everything of both runs is there."""
    fixes = [fix_typo]

    def meanwhile() -> None:
        if fixes:
            fixes.pop()(place)

    with StateStore(place) as store:
        state = create_state(Work, thread_id=THREAD, store=store)
        say("", f"goes on with {len(state.results)} results and {', '.join(state.data.files)}")
        run(state, {"planner": planner, "coder": coder, "reviewer": lambda it: reviewer(it, meanwhile)})
        told = [message.content for message in state.format_history() if isinstance(message, TextMessage)]
        print()
        say("history", " | ".join(map(str, told)))
        for entry in reversed(state.history("files", limit=3)):
            say("files", f"version {entry.version}, {entry.by}: {entry.value}")
        agents = [result.agent_name for result in state.results]
        files = {"index.html": "<h1>Hello</h1>", "style.css": DRAFTS["style.css"]}
        return agents == ["planner", "coder", "reviewer"] and state.data.files == files and state.data.approved


def main() -> int:
    if sys.argv[1:2] == ["first"]:
        first_run(Path(sys.argv[2]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "state.db"
        first = subprocess.run(
            [sys.executable, __file__, "first", str(place)], stderr=subprocess.PIPE, text=True, check=False
        )
        say("", f"the run died: {first.stderr.splitlines()[-1]}; another process:")
        return 0 if second_run(place) else 1


if __name__ == "__main__":
    sys.exit(main())
