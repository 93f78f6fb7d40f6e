"""Rules for every test: its name can stand alone in a log, and it asserts something."""

import ast
import os
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import QUICK_ON_POSTGRES

Function = ast.FunctionDef | ast.AsyncFunctionDef
Place = tuple[str, str]
"""A module below tests/ and a name at its top."""

ROOT = Path(__file__).parents[2]
TREES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text())
    for path in sorted((ROOT / "tests").rglob("*.py"))
    if "conformance" not in path.parts  # whose tools have names that the suite gives them
}
LONGEST_NAME = 80
DEPENDENT = re.compile(r"^test_(so|that|it|and|but|nor|neither|another|whoever|what|who)_")
"""How a name begins that only its neighbours explain."""
WORDS = re.compile(r"_(told|tells|said|says|stands|stood|anew|beside|whoever|asker|let_go|lets_go)(_|$)")
FAILING = {"raises", "fail", "expect", "run_state_machine_as_test"}
"""Calls of pytest, playwright and hypothesis that fail a test."""


@cache
def definitions() -> dict[Place, Function | ast.ClassDef]:
    return {
        (module, node.name): node
        for module, tree in TREES.items()
        for node in tree.body
        if isinstance(node, Function | ast.ClassDef)
    }


def tests() -> dict[Place, Function]:
    found = {
        place: node
        for place, node in definitions().items()
        if isinstance(node, Function) and node.name.startswith("test_")
    }
    assert len(found) > 2_000
    return found


def fails(node: ast.AST) -> bool:
    """Whether the code itself holds an assertion, or a call that is one."""
    called = {ast.unparse(it.func).rpartition(".")[2] for it in ast.walk(node) if isinstance(it, ast.Call)}
    return bool(called & FAILING) or any(isinstance(it, ast.Assert) for it in ast.walk(node))


def references() -> dict[Place, set[Place]]:
    """The functions, classes and fixtures below tests/ that each function or class uses."""
    imported = {
        module: {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for module, tree in TREES.items()
    }
    fixtures = defaultdict[str, set[Place]](set)
    for place, node in definitions().items():
        if any("fixture" in ast.unparse(it) for it in node.decorator_list):
            fixtures[place[1]].add(place)
    used = defaultdict[Place, set[Place]](set)
    for (module, name), node in definitions().items():
        for it in (found for part in node.body for found in ast.walk(part)):
            if isinstance(it, ast.Name):
                used[module, name] |= {(module, it.id), imported[module].get(it.id, ("", ""))}
            elif isinstance(it, ast.Attribute) and isinstance(it.value, ast.Name):
                package, inner = imported[module].get(it.value.id, ("", ""))
                used[module, name].add((f"{package}.{inner}", it.attr))
        if isinstance(node, Function):
            for argument in node.args.args:
                used[module, name] |= fixtures[argument.arg]
    return used


def silent() -> list[str]:
    """Tests that assert nothing, neither themselves nor through what they use."""
    used = references()
    asserting = {place for place, node in definitions().items() if fails(node)}
    while more := {place for place in definitions() if place not in asserting and used[place] & asserting}:
        asserting |= more
    return [f"{module}::{name}" for module, name in tests() if (module, name) not in asserting]


@pytest.mark.parametrize("rule", [DEPENDENT, WORDS], ids=["dependent", "words"])
def test_names_of_tests_can_stand_alone(rule: re.Pattern[str]) -> None:
    assert [name for _, name in tests() if rule.search(name)] == []


def test_names_of_tests_have_at_most_80_characters() -> None:
    assert [name for _, name in tests() if len(name) > LONGEST_NAME] == []


def test_every_test_asserts_something() -> None:
    assert silent() == []


def test_check_for_assertions_finds_a_test_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    definitions()
    source = "def helper():\n    pass\n\n\ndef test_nothing(monkeypatch):\n    helper()\n"
    monkeypatch.setitem(TREES, "tests.made_up", ast.parse(source))
    definitions.cache_clear()
    try:
        assert silent() == ["tests.made_up::test_nothing"]
    finally:
        definitions.cache_clear()


def test_suites_that_run_quickly_on_postgres_exist() -> None:
    assert [name for name in sorted(QUICK_ON_POSTGRES) if not (ROOT / name).is_file()] == []


def test_tests_need_no_identity_for_git_and_no_settings_of_their_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("[commit]\n  gpgSign = true\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for words in (["init", "-q", "."], ["commit", "-q", "--allow-empty", "-m", "first"]):
        assert subprocess.run(["git", *words], cwd=tmp_path, check=False).returncode == 0


@pytest.mark.check
@pytest.mark.skipif(os.name != "posix", reason="shells of POSIX ignore Ctrl-C for what they run in the background")
def test_interrupts_reach_tests_that_a_shell_runs_in_the_background() -> None:
    tests = ["tests/contracts/test_claimed.py", "-k", "interrupted_while_queued and memory"]
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "pytest", "-q", *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
