"""The files that a tool call changes, read off its input."""

import os
from pathlib import Path

import pytest

from holdlog.adapters.hooks.files import targets
from holdlog.adapters.hooks.shell import shell_targets


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("mv a b", ["a", "b"]),
        ("git mv 'x y' z", ["x y", "z"]),
        ("mv a b folder", ["a", "b", "folder/a", "folder/b"]),
        ("rm -rf old", ["old"]),
        ("git rm old", ["old"]),
        ("echo hi > out.txt", ["out.txt"]),
        ("make 2>> log", ["log"]),
        ("mv a b && rm c", ["a", "b", "c"]),
        ("cp -p a b", ["b"]),
        ("cp a b folder", ["folder/a", "folder/b"]),
        ("echo x | tee -a a b", ["a", "b"]),
        ("sed -i s/x/y/ a b", ["a", "b"]),
        ("sed -n -Ei.bak 's/x/y/' a", ["a"]),
        ("sed --in-place s/x/y/ a", ["a"]),
        ("ls > /dev/null", []),
        ("make 2>&1", []),
        ("make > log 2>&1 && rm a 2>&-", ["log", "a"]),
        ("rm a 2>&1| cat; mv b c >&2", ["a", "b", "c"]),
        ("make >& log", []),
        ("make &> log", []),
        ("cat < in", []),
        ("cat a | grep b", []),
    ],
)
def test_certain_targets_of_a_shell_command_are_found(command: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert shell_targets(command, str(tmp_path)) == found


@pytest.mark.parametrize(
    "command",
    [
        *("rm *.py", "rm $FILE", "rm `cat list`", "rm {a,b}", "cd x && rm y", "echo 'a > b'", "rm 'unclosed"),
        *("cat > a <<EOF\nrm b\nEOF", "rm a\\ b", "rm ~/a", "(rm a)", "rm a # b", "mv -t folder a", "git -C x mv a b"),
        *("cp -t folder a", "sed s/x/y/ a", "sed -i -e s/x/y/ a", "sed -i '' s/x/y/ a"),
        "rm " + "a" * 30_000,
    ],
)
def test_shell_command_with_an_uncertain_part_has_no_targets(command: str) -> None:
    assert shell_targets(command, ".") == []


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
    ],
)
def test_targets_of_a_tool_are_those_of_its_input(tool: str, given: dict[str, object], found: list[str]) -> None:
    assert [os.path.relpath(path) for path in targets(tool, given, ".").paths] == found
