"""The recipes of docs/frameworks.md, each in an environment with its framework and without holdlog."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.environments import ROOT, UV, Environment
from tests.support.http import serving

PAGE = (ROOT / "docs/frameworks.md").read_text()
RECIPES = dict(re.findall(r"^<!-- recipe: (\S+) -->\n```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
"""The code of each recipe, by the requirement that installs its framework."""
PROGRAMS = ROOT / "tests/support/frameworks"
ADDRESS = "http://127.0.0.1:8420"
EXPECTED = {
    "tools": ["holdlog_claim", "holdlog_release", "holdlog_status", "holdlog_wait"],
    "first": "claimed",
    "granted_to": "bob",
    "second": "claimed",
    "note": "section 2 is new",
}


def name_of(requirement: str) -> str:
    return re.split(r"[\[><=]", requirement)[0].removesuffix("-slim").replace("-", "_")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address of a server, and the token that it requires."""
    folder = tmp_path / "server"
    folder.mkdir()
    create = re.findall(r"^holdlog (token create .*) --out \S+$", PAGE, re.MULTILINE)[0].replace("'", "").split()
    command = [sys.executable, "-m", "holdlog", *create, "--db", str(folder / "state.db")]
    token = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    with serving(folder) as url:
        yield url, token


def test_page_has_a_recipe_for_each_program() -> None:
    assert {f"with_{name_of(it)}.py" for it in RECIPES} == {it.name for it in PROGRAMS.glob("with_*.py")}
    assert len(RECIPES) == 3


@pytest.mark.check
@pytest.mark.skipif(UV is None, reason="environments are made with uv")
@pytest.mark.parametrize("requirement", RECIPES, ids=name_of)
def test_second_agent_of_a_framework_waits_and_gets_the_claim(
    requirement: str, tmp_path: Path, server: tuple[str, str]
) -> None:
    url, token = server
    environment = Environment(tmp_path, requirement)
    assert not [it for it in environment.packages() if it.startswith("holdlog")]
    subprocess.run(["git", "init", "--quiet", str(environment.cwd)], check=True)
    (environment.cwd / "recipe.py").write_text(RECIPES[requirement].replace(ADDRESS, url))
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))  # where the command `holdlog` is
    printed = environment.run(
        PROGRAMS / f"with_{name_of(requirement)}.py",
        env={"PYTHONPATH": str(environment.cwd), "PATH": path, "HOLDLOG_TOKEN": token},
    )
    stories = {it.pop("transport"): it for it in map(json.loads, printed.splitlines())}
    assert stories == dict.fromkeys(("stdio", "http"), EXPECTED)
