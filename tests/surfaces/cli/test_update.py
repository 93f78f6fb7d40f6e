"""`holdlog update` and `holdlog transact`."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.cli.test_command_line import Terminal, run

__all__ = ["run"]
"""Fixtures."""

VISITS = ("update", "stats", "visits")


def test_update_prints_the_new_value(run: Terminal) -> None:
    assert run(*VISITS, "--increment", "1") == (0, "1\n", "")
    assert run(*VISITS, "--increment", "0.5", "--version", "1") == (0, "1.5\n", "")
    assert run("update", "n", "l", "--append", "radio", "--unique").out == '[\n  "radio"\n]\n'
    assert run("update", "n", "l", "--append", '{"a": 1}', "--json").code == 0
    assert run("update", "n", "l", "--patch", '[{"op": "remove", "path": "/0"}]').out == '[\n  {\n    "a": 1\n  }\n]\n'
    assert run("update", "n", "o", "--merge", '{"a": {"b": null}}').out == '{\n  "a": {}\n}\n'
    history = json.loads(run("history", "stats", "visits", "--json").out)["history"]
    assert [(it["operation"], it.get("based_on")) for it in history] == [("increment", 1), ("increment", None)]


def test_update_prints_its_whole_response_as_json(run: Terminal) -> None:
    done = json.loads(run(*VISITS, "--increment", "2", "--by", "ann", "--reason", "why", "--json").out)
    assert done == {
        "status": "ok",
        "namespace": "stats",
        "key": "visits",
        "version": 1,
        "previous_version": None,
        "position": 1,
        "value": 2,
    }
    assert "why" in run("history", "stats", "visits").out


def test_repeated_update_with_a_request_id_is_done_once(run: Terminal) -> None:
    for _ in range(3):
        assert run(*VISITS, "--increment", "1", "--request-id", "r").out == "1\n"
    assert run("get", "stats", "visits").out == "1\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--append", "1"), 1, "error: the value is not a list, so nothing can be appended to it; read the value and"),
        (("--patch", '[{"op": "remove", "path": "/a"}]'), 1, "error: patch[0]: remove does not apply; the value has"),
        (("--increment", "1", "--version", "9"), 1, "conflict: stats/visits is at version 1 by ann, not 9: 7\nIf your"),
        (("--increment", '"1"'), 2, "holdlog: --increment: must be a number\n"),
        (("--increment", "x"), 2, "holdlog update: argument --increment: is not valid JSON"),
        (("--merge", "{"), 2, "holdlog update: argument --merge: is not valid JSON"),
        (("--patch", "{}"), 2, "holdlog: --patch: must be a list of operations (RFC 6902)\n"),
        ((), 2, "holdlog update: one of the arguments --increment --append --merge --patch is required"),
        (("--increment", "1", "--merge", "{}"), 2, "holdlog update: argument --merge: not allowed with argument"),
        (("--increment", "1", "--unique"), 2, "holdlog: --unique: can only be combined with --append\n"),
        (("--increment", "1", "--guard", "custom://a@1"), 1, "fenced: you do not hold custom://a at version 1"),
    ],
)
def test_refused_update_names_the_reason_and_changes_nothing(
    run: Terminal, words: tuple[str, ...], code: int, message: str
) -> None:
    run("set", "stats", "visits", "7", "--version", "0", "--by", "ann")
    refused = run(*VISITS, *words)
    assert (refused.code, refused.out) == (code, "")
    assert refused.err.startswith(message), refused.err
    assert run("get", "stats", "visits").out == "7\n"


def test_missing_value_cannot_be_patched(run: Terminal) -> None:
    refused = run(*VISITS, "--patch", "[]")
    assert (refused.code, refused.err.splitlines()[0]) == (1, "not_found: stats/visits has no value")


def moved(amount: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"op": "increment", "namespace": "bank", "key": "ann", "by": -amount},
        {"op": "increment", "namespace": "bank", "key": "bob", "by": amount} | more,
    ]


def test_transaction_is_read_from_a_file_or_standard_input(
    run: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "move.json"
    file.write_text(json.dumps([*moved(5), {"op": "set", "namespace": "n", "key": "é", "value": 1}]))
    assert run("transact", str(file)) == (0, "bank  ann  v1  -5\nbank  bob  v1  5\nn     é    v1\n", "")
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(moved(2))))
    done = json.loads(run("transact", "-", "--json").out)
    assert [it["value"] for it in done["results"]] == [-7, 7]
    assert done["position"] == 5


@pytest.mark.parametrize(
    ("operations", "code", "message"),
    [
        (moved(1, expected_version=7), 1, "conflict: bank/bob is at version 1 by ann, not 7: 10\nOperation 1 was"),
        ([{"op": "delete", "namespace": "bank", "key": "x"}], 1, "not_found: bank/x has no value\nOperation 0 was"),
        (
            [*moved(1), {"op": "append", "namespace": "bank", "key": "bob", "value": 1}],
            1,
            "error: operations[2]: the value is not a list, so nothing can be appended to it; read the value and",
        ),
        (moved(1, op="incr"), 2, "holdlog: operations[1]: op: unknown operation; did you mean increment?"),
        (moved(1, by="1"), 2, "holdlog: operations[1]: by: must be a number\n"),
        ({}, 2, "holdlog: operations: must be a list of objects with op, namespace and key\n"),
        ([], 2, "holdlog: operations: must have 1 to 1000 entries\n"),
    ],
)
def test_refused_transaction_names_its_operation_and_changes_nothing(
    run: Terminal, tmp_path: Path, operations: Any, code: int, message: str
) -> None:
    run("set", "bank", "bob", "10", "--version", "0", "--by", "ann")
    file = tmp_path / "move.json"
    file.write_text(json.dumps(operations))
    refused = run("transact", str(file))
    assert (refused.code, refused.out) == (code, "")
    assert refused.err.startswith(message), refused.err
    assert run("list", "bank").out.startswith("bob  v1")


def test_refused_transaction_is_printed_as_json(run: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "move.json"
    file.write_text(json.dumps(moved(1, op="append", value=1, by=1)[:1] + moved(1, key="ann", expected_version=9)[1:]))
    refused = run("transact", str(file), "--json")
    body = json.loads(refused.out)
    assert (refused.code, body["status"], body["operation"]) == (1, "conflict", 1)


def test_file_that_cannot_be_read_is_a_bad_argument(run: Terminal, tmp_path: Path) -> None:
    missing = run("transact", str(tmp_path / "none"))
    path = tmp_path / "none"
    assert (missing.code, missing.err) == (2, f"holdlog: FILE: cannot read {path}: No such file or directory\n")
    (tmp_path / "latin").write_bytes(b"\xe9")
    assert run("transact", str(tmp_path / "latin")).err == "holdlog: FILE: is not UTF-8\n"
    (tmp_path / "broken").write_text("[")
    assert run("transact", str(tmp_path / "broken")).err == "holdlog: FILE: is not valid JSON\n"
