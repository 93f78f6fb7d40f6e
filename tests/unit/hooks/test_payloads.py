"""What hosts pass to hooks, a file for each host and version: the files that each call changes, as the host reads it.

`tool`: as the table in docs/hosts.md names it. `targets`: relative to the folder, or below HOME. `problem`: why the
call is not guarded. `ignored`: it is no call for us."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.hooks.calls import parse, read_json
from holdlog.adapters.hooks.files import local_path

PAYLOADS = Path(__file__).parents[2] / "support" / "fixtures" / "hooks" / "payloads"
FOLDER = "/project"
CASES = [
    pytest.param(case, id=f"{path.stem}-{number}-{case['tool']}")
    for path in sorted(PAYLOADS.glob("*.json"))
    for number, case in enumerate(json.loads(path.read_text()))
]


@pytest.mark.parametrize("case", CASES)
def test_payload_of_a_host_has_the_targets_that_the_host_changes(case: dict[str, Any]) -> None:
    call = parse(json.loads(json.dumps(case["stdin"]).replace("FOLDER", FOLDER)), case.get("event"))
    if case.get("ignored"):
        assert call is None
        return
    assert call is not None
    home = os.path.expanduser("~")
    expected = [it.replace("HOME", home) if it.startswith("HOME") else f"{FOLDER}/{it}" for it in case["targets"]]
    assert list(call.paths) == expected
    assert call.problem == case.get("problem", "")


@pytest.mark.parametrize("marks", ["", "\ufeff", "\ufeff\ufeff", "\ufeff\ufeff\ufeff"])
def test_byte_order_marks_before_the_json_are_skipped(marks: str) -> None:
    assert read_json(f'{marks}{{"a": 1}}'.encode()) == {"a": 1}


def test_utf_16_is_read_too() -> None:
    assert read_json('{"a": "ä"}'.encode("utf-16")) == {"a": "ä"}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/c:/Users/x/a.py", "c:/Users/x/a.py"),
        ("file:///C:/Users/a%20b.py", "C:/Users/a b.py"),
        ("C:\\Users\\a.py", "C:\\Users\\a.py"),
        ("/home/a.py", "/home/a.py"),
    ],
)
def test_path_of_a_host_on_windows_is_one_of_the_system(text: str, path: str) -> None:
    assert local_path(text, windows=True) == path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("file:///p/a%20b.py", "/p/a b.py"),
        ("file://localhost/p/%E6%97%A5.py", "/p/日.py"),
        ("/c:/a.py", "/c:/a.py"),
        ("~x/a.py", "~x/a.py"),
        ("a~/b.py", "a~/b.py"),
        ("file:a.py", "file:a.py"),
    ],
)
def test_uri_of_a_file_is_its_path_and_other_paths_stay(text: str, path: str) -> None:
    assert local_path(text, windows=False) == path
