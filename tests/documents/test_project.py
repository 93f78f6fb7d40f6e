"""Metadata, workflows, forms and documents of the repository agree with each other and with the code."""

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdlog.adapters.cli.main import parsed

ROOT = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
WORKFLOWS: dict[str, dict[Any, Any]] = {
    path.stem: yaml.safe_load(path.read_text()) for path in sorted((ROOT / ".github/workflows").glob("*.yml"))
}
CI = WORKFLOWS["ci"]["jobs"]
RELEASE = WORKFLOWS["release"]["jobs"]
FORMS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")}
LABELS = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', (ROOT / "Dockerfile").read_text()))
FOR_PEOPLE = ["AGENTS.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"]
ReleaseNotes = Callable[[str, Path], str]


def on(workflow: str) -> dict[str, Any]:
    """The events that start a workflow; YAML 1.1 reads the key `on` as true."""
    return dict(WORKFLOWS[workflow][True])


def steps(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run") or step["uses"] for step in job.get("steps", []))


@pytest.mark.check
@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", [".github/workflows/ci.yml", ".github/workflows/release.yml"]),
        ("github-issue-forms", [".github/ISSUE_TEMPLATE/bug.yml", ".github/ISSUE_TEMPLATE/feature.yml"]),
        ("github-issue-config", [".github/ISSUE_TEMPLATE/config.yml"]),
        ("dependabot", [".github/dependabot.yml"]),
        ("compose-spec", ["compose.yaml"]),
    ],
)
def test_yaml_files_match_the_schemas_of_their_readers(schema: str, files: list[str]) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


# The package


@pytest.fixture(scope="module")
def root_entries() -> set[str]:
    """The names in the root that git tracks."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run([git, "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {path.partition("/")[0] for path in listed.stdout.splitlines()}


def test_ci_runs_every_python_version_of_the_classifiers() -> None:
    listed = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert listed[0] == PROJECT["requires-python"].removeprefix(">=")
    assert CI["check"]["strategy"]["matrix"]["python"] == listed


def test_classifiers_name_only_systems_whose_tests_must_pass() -> None:
    systems = [it for it in PROJECT["classifiers"] if it.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]
    matrix = CI["check"]["strategy"]["matrix"]
    assert matrix["os"] == ["ubuntu-latest"]
    assert all(job["experimental"] for job in matrix["include"])


def test_project_urls_lead_to_files_of_this_repository() -> None:
    source = PROJECT["urls"]["Source"]
    assert PROJECT["urls"].keys() == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    assert all(url.startswith(source) for url in PROJECT["urls"].values())
    paths = [re.sub(r".*/(?:blob|tree)/main/", "", url) for url in PROJECT["urls"].values() if "/main/" in url]
    assert sorted(paths) == ["CHANGELOG.md", "docs"]
    assert all((ROOT / path).exists() for path in paths)


def test_every_dependency_has_a_lower_and_an_upper_bound() -> None:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    groups += PYPROJECT["dependency-groups"].values()
    declared = [it for group in groups for it in group if not it.startswith("holdlog[")]
    assert len(declared) > 30
    assert [it for it in declared if not re.search(r">=[\d.]+,<[\d.]+", it)] == []


def test_the_sdist_has_every_file_and_folder_of_the_root(root_entries: set[str]) -> None:
    included = PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    assert set(included) == root_entries - {"next"}  # release 0.2, a project of its own


def test_lock_image_and_deployment_have_the_version_of_the_project() -> None:
    version = PROJECT["version"]
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    assert [it["version"] for it in packages if it["name"] == "holdlog"] == [version]
    assert f"\nARG VERSION={version}\n" in (ROOT / "Dockerfile").read_text()
    tags = re.findall(r"/holdlog:(\d\S+)", (ROOT / "deploy/kubernetes.yaml").read_text())
    assert len(tags) == 2
    assert set(tags) == {version}


def test_labels_of_the_image_describe_the_project() -> None:
    assert LABELS["title"] == PROJECT["name"]
    assert LABELS["description"] == PROJECT["description"]
    assert LABELS["licenses"] == PROJECT["license"]
    assert LABELS["source"] == LABELS["url"] == PROJECT["urls"]["Source"]
    assert LABELS["version"] == "${VERSION}"
    assert (ROOT / LABELS["documentation"].removeprefix(f"{LABELS['source']}/blob/main/")).exists()


# Workflows


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_to_a_commit(name: str) -> None:
    text = (ROOT / f".github/workflows/{name}.yml").read_text()
    actions = [line for line in re.findall(r"uses: (.*)", text) if not line.startswith("./")]
    assert actions
    assert [line for line in actions if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_job_has_a_time_limit_and_checkouts_keep_no_credentials(name: str) -> None:
    jobs = [job for job in WORKFLOWS[name]["jobs"].values() if "uses" not in job]
    assert jobs
    assert all(job["timeout-minutes"] <= 30 for job in jobs)
    checkouts = [step for job in jobs for step in job["steps"] if "actions/checkout" in step.get("uses", "")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_scripts_of_workflows_contain_no_expressions(name: str) -> None:
    scripts = [
        step["run"] for job in WORKFLOWS[name]["jobs"].values() for step in job.get("steps", []) if "run" in step
    ]
    assert scripts
    assert not any("${{" in script for script in scripts)


def test_ci_builds_the_package_and_may_only_read() -> None:
    assert WORKFLOWS["ci"]["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in CI.values())
    assert steps(CI["check"]).endswith(".ci/run")
    assert steps(CI["package"]).endswith("make dist")


def test_only_a_version_tag_starts_a_release() -> None:
    assert on("release") == {"push": {"tags": ["v*"]}}


def test_each_job_of_a_release_may_do_only_what_it_must() -> None:
    assert WORKFLOWS["release"]["permissions"] == {}
    assert {name: job["permissions"] for name, job in RELEASE.items()} == {
        "check": {"contents": "read"},
        "build": {"contents": "read"},
        "publish": {"id-token": "write", "attestations": "write"},
        "announce": {"contents": "write"},
    }


def test_a_release_publishes_what_was_checked_and_only_then_announces_it() -> None:
    assert RELEASE["check"]["uses"] == "./.github/workflows/ci.yml"
    assert "workflow_call" in on("ci")
    assert RELEASE["publish"]["needs"] == ["check", "build"]
    assert RELEASE["publish"]["environment"] == "pypi"
    assert RELEASE["announce"]["needs"] == "publish"
    assert "actions/checkout" not in steps(RELEASE["publish"]) + steps(RELEASE["announce"])
    build = steps(RELEASE["build"])
    assert build.index('.ci/release_notes.py "$GITHUB_REF_NAME"') < build.index("make dist")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder with the project's metadata and a changelog whose newest version is 0.1.0."""
    text = re.sub(r'^version = ".*"$', 'version = "0.1.0"', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    (tmp_path / "pyproject.toml").write_text(text)
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n- Later.\n\n## [0.1.0] - 2026-12-01\n\n### Added\n\n"
        "- A [file](docs/store.md) and a [page](https://example.org/x).\n\n## [0.0.9] - 2026-11-01\n\n- Before.\n"
    )
    return tmp_path


@pytest.fixture(scope="module")
def release_notes() -> ReleaseNotes:
    function: ReleaseNotes = runpy.run_path(str(ROOT / ".ci/release_notes.py"))["release_notes"]
    return function


def test_release_notes_are_the_section_of_the_version(repository: Path, release_notes: ReleaseNotes) -> None:
    assert release_notes("v0.1.0", repository) == (
        f"### Added\n\n- A [file]({PROJECT['urls']['Source']}/blob/v0.1.0/docs/store.md)"
        " and a [page](https://example.org/x).\n"
    )


@pytest.mark.parametrize("tag", ["v0.1.1", "0.1.0", "v0.0.9", "v0.1"])
def test_a_tag_that_is_not_the_version_is_refused(repository: Path, release_notes: ReleaseNotes, tag: str) -> None:
    with pytest.raises(SystemExit, match=r"expected the tag v0\.1\.0"):
        release_notes(tag, repository)


def test_a_version_without_a_section_in_the_changelog_is_refused(repository: Path, release_notes: ReleaseNotes) -> None:
    (repository / "CHANGELOG.md").write_text("# Changelog\n\n## [0.1.0]\n\n## [0.0.9]\n\n- Before.\n")
    with pytest.raises(SystemExit, match=r"no section ## \[0\.1\.0\], or it is empty"):
        release_notes("v0.1.0", repository)


def test_dependabot_looks_where_containers_are_described() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    assert [it["package-ecosystem"] for it in updates] == ["uv", "github-actions", "docker", "docker-compose"]
    (docker,) = [it for it in updates if it["package-ecosystem"] == "docker"]
    found = {path.parent for path in [*ROOT.glob("*Dockerfile*"), *ROOT.glob("deploy/*Dockerfile*")]}
    assert found == {ROOT / folder.strip("/") for folder in docker["directories"]}


# Documents and forms


def test_the_bug_form_asks_for_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    described = str(FORMS["bug"])
    commands = set(re.findall(r"`holdlog ([^`]+)`", described))
    assert commands == {"--version", "doctor --json"}
    assert parsed(["doctor", "--json"]).json is True
    with pytest.raises(SystemExit, match=r"^0$"):
        parsed(["--version"])
    assert capsys.readouterr().out == f"holdlog {PROJECT['version']}\n"


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md", ".github/ISSUE_TEMPLATE/config.yml"])
def test_private_reports_lead_to_the_form_for_security_advisories(name: str) -> None:
    text = (ROOT / name).read_text()
    assert f"{PROJECT['urls']['Source']}/security/advisories/new" in text
    assert re.search(r"[\w.+-]+@[\w-]+\.\w+", text) is None


@pytest.mark.parametrize("name", FOR_PEOPLE)
def test_files_and_commands_named_in_documents_for_contributors_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    links = re.findall(r"\]\((?!https:)([^)#]+)", text)
    quoted = re.findall(r"`((?:tests|adapters|docs|domain|projections|bench|deploy|\.ci|\.github)/[\w./-]*)`", text)
    tests = re.findall(r"(tests/[\w/]+\.py)", text)
    named = {*links, *quoted, *tests}
    assert sorted(path for path in named if not (ROOT / path).exists()) == []
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make (\w+)", text)) <= targets


def test_contributing_names_every_file_and_folder_of_the_root(root_entries: set[str]) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert sorted(it for it in root_entries if not re.search(rf"`{re.escape(it)}[`/]", text)) == []
