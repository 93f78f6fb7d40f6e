"""Metadata, workflows and documents of the repository agree with each other and with the code."""

import re
import runpy
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import holdlog

ROOT = Path(__file__).parents[1]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def test_readme_starts_with_the_two_commands() -> None:
    (first,) = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[:1]
    clone = "git clone https://github.com/holdlog/holdlog && cd holdlog"
    assert first.splitlines() == [clone, "make demo", "make test"]


def test_list_of_pages_names_every_page() -> None:
    docs = ROOT / "docs"
    links = set(re.findall(r"\]\((\S+)\)", (docs / "README.md").read_text()))
    assert links >= {page.name for page in docs.glob("*.md")} - {"README.md"} | {"decisions/README.md"}


def test_ci_runs_every_python_version_of_the_classifiers() -> None:
    listed = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert listed[0] == PROJECT["requires-python"].removeprefix(">=")
    matrix = re.search(r"python: \[(.*)\]", (ROOT / ".github/workflows/ci.yml").read_text())
    assert matrix is not None
    assert re.findall(r"[\d.]+", matrix[1]) == listed


def test_every_dependency_has_a_lower_and_an_upper_bound() -> None:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    groups += PYPROJECT["dependency-groups"].values()
    declared = [it for group in groups for it in group if not it.startswith("holdlog[")]
    assert len(declared) > 20
    assert [it for it in declared if not re.search(r">=[\d.]+,<[\d.]+", it)] == []


def test_sdist_has_every_file_and_folder_of_the_root() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run([git, "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    included = PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    assert set(included) == {path.partition("/")[0] for path in listed.stdout.splitlines()}


def test_image_deployment_and_changelog_have_the_version_of_the_package() -> None:
    assert f"\nARG VERSION={holdlog.__version__}\n" in (ROOT / "Dockerfile").read_text()
    tags = re.findall(r"/holdlog:(\d\S+)", (ROOT / "deploy/kubernetes.yaml").read_text())
    assert set(tags) == {holdlog.__version__}
    notes = runpy.run_path(str(ROOT / ".ci/release_notes.py"))["release_notes"]
    assert notes(f"v{holdlog.__version__}")
    with pytest.raises(SystemExit, match="expected the tag"):
        notes("v0.0.1")
