"""The plugin for OpenCode, run by Node as OpenCode 2 runs it: as its published source calls plugins, because its
package is not in every registry (tests/conformance/opencode.py)."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from holdlog import StateStore
from tests.processes.test_opencode import play, project

__all__ = ["project"]

pytestmark = [pytest.mark.check, pytest.mark.skipif(shutil.which("node") is None, reason="needs node")]

DRIVER = """
import { writeFileSync } from "node:fs"
import * as module from "./holdlog.mjs"

const hooks = {}
const parents = {}
let deliver, handled
const hook = (domain) => async (name, callback) => (hooks[`${domain}.${name}`] = callback)
async function* subscribe() {
  while (true) {
    const next = new Promise((resolve) => (deliver = resolve))
    handled?.()
    yield await next
  }
}
const ctx = {
  location: { directory: process.cwd() },
  tool: { hook: hook("tool") },
  session: { hook: hook("session"), get: async ({ sessionID }) => ({ id: sessionID, parentID: parents[sessionID] }) },
  event: { subscribe },
}
const steps = {
  exports: async () => Object.keys(module),
  parent: async (child, parent) => void (parents[child] = parent),
  prompt: (sessionID) => hooks["session.prompt"]({ sessionID, messageID: "msg_1", prompt: { text: "go" } }),
  context: async (sessionID) => {
    const event = { sessionID, system: [], messages: [], kind: "primary" }
    await hooks["session.context"](event)
    return event.system
  },
  call: async (sessionID, tool, input, text) => {
    const call = { id: "call_1", tool, sessionID, agent: "build", messageID: "msg_2", input }
    await hooks["tool.execute.before"](call)
    if (text !== undefined) writeFileSync(input.path, text)
    const event = { ...call, status: "completed", result: { content: "done" } }
    await hooks["tool.execute.after"](event)
    return event.result.content
  },
  event: (type, data) =>
    new Promise((resolve) => {
      handled = resolve
      deliver({ id: "evt_1", type, data })
    }),
  write: async (path, text) => writeFileSync(path, text),
  end: () => cleanup(),
}
const cleanup = await module.default.setup(ctx)
for (const [name, ...words] of JSON.parse(process.argv[2])) {
  const done = await steps[name](...words).then((value) => ({ value: value ?? null }), (it) => ({ error: it.message }))
  console.log(JSON.stringify(done))
}
"""
"""Plays steps. A call that the hook does not reject writes a text into its file, and prints the content of its result;
an event is over when the plugin asks for the next one."""


def play_2(folder: Path, *steps: tuple[Any, ...]) -> list[dict[str, Any]]:
    (folder / "driver.mjs").write_text(DRIVER)
    return play(folder, *steps)


def holders(folder: Path) -> dict[str, str]:
    with StateStore(folder / ".holdlog" / "state.db") as store:
        return {it.resource: it.held_by for it in store.board().claims}


PATCH = "*** Begin Patch\n*** Add File: c.py\n+x\n  *** Delete File: held.py\n*** End Patch"
SHELL = {"command": "rm held.py", "workdir": "."}


def test_opencode_2_does_not_run_calls_that_change_a_held_file(project: Path) -> None:
    held = str(project / "held.py")
    exports, _, system, *denied, allowed, again = play_2(
        project,
        ("exports",),
        ("prompt", "ses_1"),
        ("context", "ses_1"),
        ("call", "ses_1", "edit", {"path": held, "oldString": "x", "newString": "y"}, "y"),
        ("call", "ses_1", "patch", {"patchText": PATCH.replace("  *** Delete", "*** Delete")}),
        ("call", "ses_1", "shell", SHELL),
        ("call", "ses_1", "write", {"path": str(project / "new.py"), "content": "z = 1\n"}, "z = 1\n"),
        ("context", "ses_1"),
    )
    assert exports["value"] == ["default"]
    assert "your agent name is opencode-" in system["value"][0]["text"]
    assert system == again
    for step in denied:
        assert step["error"].startswith("holdlog: held.py is held by rival since ")
    assert allowed == {"value": "done"}
    assert not (project / "held.py").exists()
    assert holders(project)["held.py"] == "rival"
    assert holders(project)["new.py"].startswith("opencode-")


def test_agent_in_opencode_2_is_warned_in_the_result_of_its_call(project: Path) -> None:
    path = str(project / "a.py")
    *_, edited, unnamed = play_2(
        project,
        ("prompt", "ses_2"),
        ("call", "ses_1", "read", {"path": path}),
        ("call", "ses_2", "write", {"path": path, "content": "x = 22\n"}, "x = 22\n"),
        ("event", "session.deleted", {"sessionID": "ses_2"}),
        ("call", "ses_1", "edit", {"path": path, "oldString": "2", "newString": "3"}),
        ("call", "ses_1", "patch", {"patchText": "no markers"}),
    )
    first, warning = (part["text"] for part in edited["value"])
    assert first == "done"
    assert "after you read it" in warning
    assert "patch names no file" in unnamed["value"][1]["text"]


def test_child_session_of_opencode_2_is_an_agent_whose_claims_end_with_it(project: Path) -> None:
    def write(session: str, name: str) -> tuple[Any, ...]:
        return "call", session, "write", {"path": str(project / name), "content": "x"}, "x"

    *_, denied, _, allowed = play_2(
        project,
        ("parent", "ses_2", "ses_1"),
        ("prompt", "ses_2"),
        write("ses_2", "b.py"),
        write("ses_1", "b.py"),
        ("event", "session.execution.succeeded", {"sessionID": "ses_2"}),
        write("ses_1", "b.py"),
    )
    assert "b.py is held by " in denied["error"]
    assert allowed == {"value": "done"}


def test_plugin_that_is_unloaded_releases_what_is_unchanged_and_keeps_the_rest(project: Path) -> None:
    play_2(
        project,
        ("prompt", "ses_3"),
        ("call", "ses_3", "edit", {"path": str(project / "a.py"), "oldString": "1", "newString": "1"}),
        ("call", "ses_3", "write", {"path": str(project / "new.py"), "content": "x"}, "x"),
        ("event", "session.execution.failed", {"sessionID": "ses_of_another_folder"}),
        ("end",),
    )
    assert sorted(holders(project)) == ["held.py", "new.py"]
