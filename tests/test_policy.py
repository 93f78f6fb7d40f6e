"""`holdlog.toml`: which glob matches, which rule wins, and what an error says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdlog.adapters.policy.globs import is_match
from holdlog.adapters.policy.in_force import Policy, find_rule_below, read_policy, read_uncommitted
from holdlog.adapters.policy.policy import PathRule, PolicyError, parse_policy
from tests.support.hosts import commit_policy, repository, write

WRONG = {
    "x = 1": "x: must be one of paths, stale-reads, git",
    'stale-reads = "no"': "stale-reads: must be one of warn, deny, off",
    'git = "allow"': "git: must be one of deny, warn, off",
    "stale-reads = {}": "stale-reads: must be one of warn, deny, off",
    "paths = 5": "paths: must be a table: [paths]",
    "[paths]\na = 'warn'\n'*.md' = 'deny'": "paths.*.md: must be one of block, warn, human, across-",
    '[paths]\n"*.md" = []': "paths.*.md: must be one of block, warn, human, across-worktrees",
    '[paths]\n"*.md" = ["warn", "human"]': "paths.*.md: must have at most one of block, warn, human",
    '[paths]\n"/" = "warn"': "paths./: must be a glob such as docs/** or *.lock",
    '[paths]\n"../x" = "warn"': "paths.../x: must be relative to the root of the repository",
    '[paths]\n"**/a/**/b/**" = "warn"': "paths.**/a/**/b/**: must have ** at most 2 times",
    '[paths]\n"a\\u0000b" = "warn"': "paths.a?b: must be a glob",
    "a =\nb = 1": "is not TOML: Invalid value (at line 1",
    "[paths": "is not TOML: Expected",
    "a = 1\na = 2": "is not TOML: Cannot overwrite a value",
}


@pytest.mark.parametrize("text", WRONG)
def test_error_is_one_line_with_its_key_and_what_is_allowed(text: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_policy(text.encode())
    assert str(error.value).startswith(f"holdlog.toml: {WRONG[text]}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = 1\n\xff", "holdlog.toml: is not UTF-8"),
        (b"\n" + b"a." * 60_000 + b"a = 1", "holdlog.toml: has more than 2000 bytes in one line"),
        (b"#" * 300_000, "holdlog.toml: is larger than 256 KB"),
        (b"a = " + b"[\n" * 100_000, "holdlog.toml: is nested too deeply"),
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
    assert policy.find_rule("docs/a.md") == PathRule("warn", glob="docs/**")
    assert policy.find_rule("docs/legal.md") == PathRule("human", glob="docs/legal.md")
    assert policy.find_rule("docs/a.sql") == PathRule("block", across_worktrees=True, glob="*.sql")
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
    assert (read_policy(str(root)).git, "holdlog.toml: git: must" in read_policy(str(root)).problem) == ("deny", True)
    assert read_policy(str(root)).notice == "holdlog.toml is not in force, so the defaults apply"


def test_file_counts_where_there_is_no_git(tmp_path):
    write(tmp_path / "holdlog.toml", "git = 'off'\n")
    assert read_policy(str(tmp_path)).git == "off"


def test_folder_with_a_file_that_only_a_person_may_change_is_theirs(root):
    assert find_rule_below(str(root), "")[1] == "holdlog.toml" or not (root / "holdlog.toml").exists()
    commit_policy(root, "[paths]\n'src/b.py' = 'human'\n'docs/' = 'warn'\n")
    assert find_rule_below(str(root), "src")[1] == "b.py"
    assert find_rule_below(str(root), "docs")[0].mode == "warn"
    assert find_rule_below(str(root), "lib")[0] == PathRule("block")


@given(st.text(max_size=200), st.text(max_size=200))
def test_matching_never_raises(glob: str, path: str) -> None:
    assert is_match(glob, path) in (True, False)


def test_matching_of_the_longest_path_ends() -> None:
    assert not is_match("**/a/**/c", "a/" * 2_048)


@given(st.binary(max_size=300))
def test_any_content_is_a_policy_or_one_line(content: bytes) -> None:
    problem = None
    try:
        parse_policy(content).find_rule("a.py")
    except PolicyError as error:
        problem = str(error)
    assert problem is None or (problem.startswith("holdlog.toml: ") and problem.isprintable())
