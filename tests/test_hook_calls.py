"""What hosts pass to hooks, a file for each host and version: the files that each call changes.

`targets`: relative to the folder, or below HOME. `problem`: why the call is not guarded. `ignored`: it is no call."""

import json
import os
from pathlib import Path

import pytest

from holdlog.adapters.hooks.calls import find_call_targets, parse, read_json
from holdlog.adapters.hooks.tools import make_local

PAYLOADS = Path(__file__).parent / "support" / "payloads"
CASES = [
    pytest.param(case, id=f"{path.stem}-{number}-{case['tool']}")
    for path in sorted(PAYLOADS.glob("*.json"))
    for number, case in enumerate(json.loads(path.read_text()))
]


@pytest.mark.parametrize("case", CASES)
def test_call_of_a_host_has_the_targets_that_the_host_changes(case):
    given = json.loads(json.dumps(case["stdin"]).replace("FOLDER", "/project"))
    call = parse(given, case.get("event"))
    if case.get("ignored"):
        assert call is None
        return
    assert call is not None
    home = os.path.expanduser("~")
    expected = [it.replace("HOME", home) if it.startswith("HOME") else f"/project/{it}" for it in case["targets"]]
    targets = find_call_targets(call, given)
    assert (list(targets.paths), targets.problem) == (expected, case.get("problem", ""))


@pytest.mark.parametrize("marks", ["", "\ufeff", "\ufeff\ufeff\ufeff"])
def test_byte_order_marks_before_the_json_are_skipped(marks):
    assert read_json(f'{marks}{{"a": 1}}'.encode()) == {"a": 1}


def test_utf_16_is_read_too():
    assert read_json('{"a": "ä"}'.encode("utf-16")) == {"a": "ä"}


@pytest.mark.parametrize(
    ("text", "path"),
    [("file:///p/a%20b.py", "/p/a b.py"), ("file://localhost/p/%E6%97%A5.py", "/p/日.py"), ("~x/a.py", "~x/a.py")],
)
def test_uri_of_a_file_is_its_path(text, path):
    assert make_local(text) == path
