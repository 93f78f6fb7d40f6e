"""The files that a tool call changes, read off its input."""

import os

import pytest

from holdlog.adapters.hooks.files import targets


@pytest.mark.parametrize(
    ("tool", "given", "found"),
    [
        ("Edit", {"file_path": "a"}, ["a"]),
        ("NotebookEdit", {"notebook_path": "a"}, ["a"]),
        ("Read", {"file_path": "a"}, []),
        ("Edit", {"file_path": 1}, []),
        ("apply_patch", {"command": "*** Update File: a b.py\n*** Move to: c.py\n"}, ["a b.py", "c.py"]),
        ("apply_patch", {"command": ["apply_patch", "*** Delete File: a.py"]}, ["a.py"]),
        ("apply_patch", {}, []),
        ("Bash", {"command": 1}, []),
        ("shell", {"command": ["rm", "a b"]}, ["a b"]),
        ("exec_command", {"cmd": "rm a", "workdir": "b"}, ["b/a"]),
        ("functions.apply_patch", {"input": "*** Update File: a"}, ["a"]),
        ("str_replace_based_edit_tool", {"command": "create", "path": "a", "file_text": ""}, ["a"]),
        ("str_replace_based_edit_tool", {"command": "view", "path": "a"}, []),
        ("write_to_file", {"path": "a", "content": ""}, ["a"]),
        ("apply_diff", {"path": "a", "diff": "<<<<<<< SEARCH"}, ["a"]),
        ("mcp__web__upload_file", {"path": "a", "content": ""}, []),
        ("Bash", {"command": "patch -p1 <<A\n--- a/b c.py\n+++ b/b c.py\nA"}, ["b c.py"]),
    ],
)
def test_targets_of_a_tool_are_those_of_its_input(tool: str, given: dict[str, object], found: list[str]) -> None:
    assert [os.path.relpath(path) for path in targets(tool, given, ".").paths] == found
