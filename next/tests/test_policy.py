"""`holdlog.toml`: which glob matches, which rule wins, and what an error says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdlog.adapters.cli import settings as cli
from holdlog.adapters.policy.globs import is_match
from holdlog.adapters.policy.in_force import Policy, find_rule_below, read_policy, read_settings, read_uncommitted
from holdlog.adapters.policy.policy import PathRule, PolicyError, parse_policy
from tests.support.hosts import commit_policy, repository, write

WRONG = {
    "x = 1": "holdlog.toml:1: x: is not a key; the keys are paths, stale-reads, git, tools, lease, workspaces",
    "# one\npath = {}": "holdlog.toml:2: path: is not a key; did you mean paths? the keys are ",
    'stale-reads = "no"': "holdlog.toml:1: stale-reads: must be one of warn, deny, off",
    'git = "allow"': "holdlog.toml:1: git: must be one of deny, warn, off",
    "stale-reads = {}": "holdlog.toml:1: stale-reads: must be one of warn, deny, off",
    'tools = "claims"': "holdlog.toml:1: tools: must be a list of claims, state,",
    'tools = ["claims", "x"]': "holdlog.toml:1: tools: must be a list of claims, state,",
    "tools = [[1]]": "holdlog.toml:1: tools: must be a list of claims, state,",
    "[lease]\nsecond = 5": "holdlog.toml:2: lease.second: is not a key; did you mean seconds?",
    "[lease]\n\nseconds = 0": "holdlog.toml:3: lease.seconds: must be from 1 to 86400 seconds",
    "[lease]\nseconds = true": "holdlog.toml:2: lease.seconds: must be from 1 to 86400 seconds",
    "[lease]\nseconds = nan": "holdlog.toml:2: lease.seconds: must be from 1 to 86400 seconds",
    "lease.seconds = 0": "holdlog.toml:1: lease.seconds: must be from 1 to 86400 seconds",
    "[lease]\nidle-limit = '1'": "holdlog.toml:2: lease.idle-limit: must be from 1 to 86400 seconds",
    "lease = 5": "holdlog.toml:1: lease: must be a table: [lease], and below it such as seconds = 600",
    "paths = 5": "holdlog.toml:1: paths: must be a table: [paths]",
    "[paths]\na = 'warn'\n'*.md' = 'deny'": "holdlog.toml:3: paths.*.md: must be one of block, warn, human, across-",
    '[paths]\n"*.md" = []': "holdlog.toml:2: paths.*.md: must be one of block, warn, human, across-worktrees",
    '[paths]\n"*.md" = ["warn", "human"]': "holdlog.toml:2: paths.*.md: must have at most one of block, warn, human",
    '[paths]\n"/" = "warn"': "holdlog.toml:2: paths./: must be a glob such as docs/** or *.lock",
    '[paths]\n"../x" = "warn"': "holdlog.toml:2: paths.../x: must be relative to the root of the repository",
    '[paths]\n"a\\u0000b" = "warn"': "holdlog.toml:2: paths.a?b: must be a glob",
    '[workspaces]\nmain = "x"': "holdlog.toml:2: workspaces.main: must have only letters a to z, digits,",
    "[workspaces]\ndocs = 5": "holdlog.toml:2: workspaces.docs: must be the path of a folder, such as ../docs",
    "a =\nb = 1": "holdlog.toml:1: is not TOML: invalid value",
    "[paths": "holdlog.toml:1: is not TOML: expected",
    "a = 1\na = 2": "holdlog.toml:2: is not TOML: cannot overwrite a value",
}


@pytest.mark.parametrize("text", WRONG)
def test_error_is_one_line_with_its_place_and_what_is_allowed(text: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_policy(text.encode())
    assert str(error.value).startswith(WRONG[text])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = 1\n\xff", "holdlog.toml:2: is not UTF-8"),
        (b"\n" + b"a." * 60_000 + b"a = 1", "holdlog.toml:2: has more than 2000 characters in one line"),
        (b"#" * 300_000, "holdlog.toml:1: is larger than 256 KB"),
        (b"a = " + b"[\n" * 100_000, "holdlog.toml:1: is nested too deeply"),
    ],
)
def test_unreadable_file_is_one_line(content: bytes, message: str) -> None:
    with pytest.raises(PolicyError, match=f"^{message}$"):
        parse_policy(content)


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("package.json", ["package.json", "web/package.json"], ["package.json.md", "package.json/x"]),
        ("/package.json", ["package.json"], ["web/package.json"]),
        ("*.lock", ["uv.lock", "a/b/Cargo.lock", ".lock"], ["uv.lock/x", "lock"]),
        ("docs/**", ["docs/a.md", "docs/a/b.md", "docs/"], ["docs", "web/docs/a.md", "docsx/a"]),
        ("docs/*.md", ["docs/a.md"], ["docs/a/b.md", "docs/"]),
        ("migrations/", ["migrations/1.sql", "db/migrations/1.sql", "db/migrations/"], ["migrations", "migrations.py"]),
        ("**/test_*.py", ["test_a.py", "a/b/test_a.py"], ["a/x_test_a.py"]),
        ("src/**/api/*.py", ["src/api/a.py", "src/x/y/api/a.py"], ["src/api/x/a.py"]),
        ("app/[id]/page.tsx", ["app/[id]/page.tsx"], ["app/i/page.tsx"]),
        ("a?.py", ["ab.py"], ["a.py", "a/.py"]),
        ("**", ["a", "a/b", "a/"], []),
        ("café.md", ["cafe\u0301.md"], []),
    ],
)
def test_glob_matches_as_in_gitignore(glob: str, matching: list[str], others: list[str]) -> None:
    assert [path for path in matching if not is_match(glob, path)] == []
    assert [path for path in others if is_match(glob, path)] == []


def test_last_glob_that_matches_decides() -> None:
    policy = parse_policy(b"[paths]\n'docs/**' = 'warn'\n'docs/legal.md' = 'human'\n'*.sql' = 'across-worktrees'\n")
    assert policy.find_rule("docs/a.md") == PathRule("warn", glob="docs/**", line=2)
    assert policy.find_rule("docs/legal.md") == PathRule("human", glob="docs/legal.md", line=3)
    assert policy.find_rule("docs/a.sql") == PathRule("block", across_worktrees=True, glob="*.sql", line=4)
    assert policy.find_rule("src/a.py") == PathRule("block")


def test_policy_file_is_for_people_unless_a_rule_names_it() -> None:
    assert parse_policy(b"").find_rule("holdlog.toml").mode == "human"
    assert parse_policy(b"").find_rule("web/holdlog.toml").mode == "block"
    assert parse_policy(b"[paths]\n'holdlog.toml' = 'warn'").find_rule("holdlog.toml").mode == "warn"


@pytest.fixture
def root(tmp_path):
    return repository(tmp_path / "repo", has_store=False)


def test_policy_of_head_is_in_force_and_an_edit_relaxes_nothing(root):
    assert read_policy(str(root)) == Policy()
    commit_policy(root, "git = 'warn'\n[paths]\n'*.sql' = 'human'\n")
    write(root / "holdlog.toml", "git = 'off'\n")
    assert (read_policy(str(root)).git, read_policy(str(root)).find_rule("a.sql").mode) == ("warn", "human")
    assert read_uncommitted(str(root)).git == "off"
    (root / "holdlog.toml").unlink()
    assert (read_policy(str(root)).git, read_uncommitted(str(root))) == ("warn", None)
    commit_policy(root, "git = 'no'\n")
    assert (read_policy(str(root)).git, "holdlog.toml:1: git: must" in read_policy(str(root)).problem) == ("deny", True)
    assert read_policy(str(root)).notice == "holdlog.toml:1 is not in force, so the defaults apply"


def test_settings_of_a_policy_are_defaults_of_servers(root, monkeypatch):
    commit_policy(root, "tools = ['state']\n[lease]\nseconds = 600\n[workspaces]\nweb = 'src'\ngone = '../no'\n")
    monkeypatch.chdir(root)
    found = {"tools": ("state",), "lease_seconds": 600.0, "workspace": (f"web={root}/src",)}
    assert read_settings(str(root)) == found
    settings = cli.read_settings({"lease_seconds": "60"})
    assert (settings.tools, settings.lease_seconds, settings.workspace) == (("state",), 60.0, found["workspace"])


def test_file_counts_where_there_is_no_git(tmp_path):
    write(tmp_path / "holdlog.toml", "git = 'off'\n")
    assert read_policy(str(tmp_path)).git == "off"


def test_folder_with_a_file_that_only_a_person_may_change_is_theirs(root):
    assert find_rule_below(str(root), "").below == "holdlog.toml" or not (root / "holdlog.toml").exists()
    commit_policy(root, "[paths]\n'src/b.py' = 'human'\n'docs/' = 'warn'\n")
    assert find_rule_below(str(root), "src").below == "b.py"
    assert find_rule_below(str(root), "docs").rule.mode == "warn"
    assert find_rule_below(str(root), "lib").rule == PathRule("block")


@given(st.text(max_size=200), st.text(max_size=200))
def test_matching_never_raises(glob: str, path: str) -> None:
    assert is_match(glob, path) in (True, False)


@given(st.text(alphabet="*a/", min_size=1, max_size=40), st.text(alphabet="a/b", max_size=3_000))
def test_matching_of_many_stars_ends(glob: str, path: str) -> None:
    assert is_match(glob, path) in (True, False)


@given(st.binary(max_size=300))
def test_any_content_is_a_policy_or_one_line(content: bytes) -> None:
    problem = None
    try:
        parse_policy(content).find_rule("a.py")
    except PolicyError as error:
        problem = str(error)
    assert problem is None or (problem.startswith("holdlog.toml:") and problem.isprintable())
