"""The table in docs/hosts.md of what is guarded: each row holds for the payloads of its host, at the door of hooks."""

import io
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdlog.adapters.cli.setup.hosts import HOSTS, Project
from holdlog.adapters.hooks.running import run
from tests.surfaces.hooks.conftest import store, with_claim
from tests.unit.hooks.test_payloads import PAYLOADS

__all__ = ["store"]

PAGE = (Path(__file__).parents[2] / "docs" / "hosts.md").read_text()
FILES = {
    "Claude Code 1.0.85 to 2": "claude-code-2",
    "Codex 0.124 and later": "codex-0",
    "Cursor 2.4 to 3, and 2026": "cursor-2",
    "OpenCode 1.18.29 to 1": "opencode-1",
    "OpenCode 2.0.7 and later": "opencode-2",
    "VS Code and Copilot, if they run the hooks of Claude Code": "vscode-1",
}
"""The payloads of each host in the table."""


class Row(NamedTuple):
    """A row of the table. `names`: of its tools."""

    host: str
    names: tuple[str, ...]
    kind: str


def rows() -> Iterator[Row]:
    for line in PAGE.split("<!-- guarded -->")[1].strip().splitlines()[2:]:
        host, tools, kind, _ = (it.strip() for it in line.strip("|").split("|"))
        yield Row(host, tuple(re.findall("`([^`]+)`", tools)), kind)


ROWS = [it for it in rows() if it.host in FILES]


def cases(host: str) -> list[dict[str, Any]]:
    return list(json.loads((PAYLOADS / f"{FILES[host]}.json").read_text()))


def name_of(case: dict[str, Any]) -> str:
    return str(case.get("name", case["tool"]))


def denied(output: str) -> bool:
    return re.search(r'"(permissionDecision|permission|decision)": "deny"', output) is not None


@pytest.mark.parametrize("host", FILES)
def test_table_lists_each_tool_of_the_payloads_once_and_no_other(host: str) -> None:
    listed = [name for row in ROWS if row.host == host for name in row.names]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(map(name_of, cases(host)))


def test_hosts_without_hooks_are_listed_as_not_guarded() -> None:
    (last,) = (it for it in rows() if it.host not in FILES)
    assert last.kind == "not guarded"
    assert [it.title for it in HOSTS.values() if not it.has_hooks] == last.host.replace(" otherwise", "").split(", ")


@pytest.mark.parametrize(
    ("host", "name"), [("Claude Code 1.0.85 to 2", "claude-code"), ("Codex 0.124 and later", "codex")]
)
def test_hooks_that_init_writes_run_for_the_tools_of_the_table(host: str, name: str, tmp_path: Path) -> None:
    files = HOSTS[name].files(Project(tmp_path, tmp_path, "holdlog", {}))
    entries = {it.path[-1]: it.value for file in files for it in file.entries if it.path[0] == "hooks"}
    for row in (it for it in ROWS if it.host == host and it.kind != "no file"):
        for tool in (it.partition(":")[0] for it in row.names):
            assert re.fullmatch(entries["PreToolUse"]["matcher"], tool)
            assert tool == "Bash" or re.fullmatch(entries["PostToolUse"]["matcher"], tool)


@pytest.mark.check
@pytest.mark.parametrize("host", FILES)
def test_payloads_are_denied_as_the_table_of_guarded_tools_requires(
    host: str, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [it for it in cases(host) if not it.get("ignored") and "HOME" not in json.dumps(it["targets"])]
    for path in sorted({it for case in given for it in case["targets"]}):
        with_claim(store, path, "ann")
    (store.parents[1] / "src").mkdir()
    folder = str(store.parents[1])
    for row in ROWS:
        for case in (it for it in given if row.host == host and name_of(it) in row.names):
            os.chdir(folder)
            text = json.dumps(case["stdin"]).replace("FOLDER", folder).encode()
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
            assert run([case["event"]] if "event" in case else []) == 0
            out, err = capsys.readouterr()
            if case["targets"]:
                assert (row.kind, denied(out), err) == ("guarded", True, ""), case
            elif "problem" in case:
                assert row.kind in ("guarded", "not guarded"), case
                assert not denied(out), case
            else:
                assert (denied(out), err) == (False, ""), case
    for row in (it for it in ROWS if it.host == host and it.kind in ("guarded", "not guarded")):
        field = "targets" if row.kind == "guarded" else "problem"
        assert {name_of(it) for it in given if it.get(field)} >= set(row.names)
