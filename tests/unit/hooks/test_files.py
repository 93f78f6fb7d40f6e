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
        ("apply_patch", {"command": ["apply_patch", "*** Delete File: a.py"]}, []),
        ("apply_patch", {}, []),
        ("Bash", {"command": 1}, []),
        ("shell", {"command": ["rm", "a b"]}, ["a b"]),
        ("Bash", {"command": "patch -p1 <<A\n--- a/b c.py\n+++ b/b c.py\nA"}, ["b c.py"]),
    ],
)
def test_targets_of_a_tool_are_those_of_its_input(tool: str, given: dict[str, object], found: list[str]) -> None:
    assert [os.path.relpath(path) for path in targets(tool, given, ".").paths] == found
