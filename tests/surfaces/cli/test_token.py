"""`holdlog token`: what it prints where, and what it refuses in one line."""

import getpass
import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from holdlog.adapters.auth.tokens import hash_of
from holdlog.adapters.cli.main import main
from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.runtime.verifier import Verifier

TEXT = re.compile(r"holdlog_[a-z0-9-]+_[A-Za-z0-9_-]{43}")


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HOLDLOG")]:
        monkeypatch.delenv(name)


@pytest.fixture(params=["file", "schema"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "state.db") if request.param == "file" else str(request.getfixturevalue("postgres"))


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "state.db")


def holdlog(db: str, *arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    """Within this process: a new one takes a second."""
    command = ["token", *arguments, "--db", db]
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            ended = main(command)
        except SystemExit as error:
            ended = int(error.code or 0)
    assert ended == code, err.getvalue()
    return subprocess.CompletedProcess(command, ended, out.getvalue(), err.getvalue())


def create(db: str, *more: str, name: str = "ci", allow: str = "read:*") -> str:
    return holdlog(db, "create", "--name", name, "--allow", allow, *more).stdout.strip()


def listed(db: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(holdlog(db, "list", "--json").stdout)["tokens"]
    return found


async def principal_of(db: str, text: str) -> str | None:
    engine = open_holdlog(db if "://" in db else Path(db))
    try:
        principal = await Verifier(engine).verify(text)
        return principal and principal.name
    finally:
        engine.close()


async def test_new_token_is_all_of_standard_output_and_grants_access(db: str) -> None:
    done = holdlog(db, "create", "--name", "ci", "--allow", "write:build-*", "--allow", "read:*", "--expires", "30d")
    assert TEXT.fullmatch(done.stdout.rstrip("\n"))
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(
        r"holdlog: token ci allows write:build-\*, read:\* and expires [-0-9:. ]+ UTC; copy it now, .*", line
    )
    assert await principal_of(db, done.stdout.strip()) == "token:ci"


def others_may(path: Path) -> int:
    return path.stat().st_mode & 0o077


async def test_token_out_option_writes_the_secret_to_a_private_file(db: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    before = os.umask(0)
    try:
        done = holdlog(db, "create", "--name", "ci", "--allow", "read:*", "--out", str(first))
        again = holdlog(db, "rotate", "ci", "--overlap", "1h", "--out", str(second))
    finally:
        os.umask(before)
    assert [await principal_of(db, it.read_text().rstrip("\n")) for it in (first, second)] == ["token:ci"] * 2
    assert [it.stat().st_mode & 0o777 for it in (first, second)] == [0o600, 0o600]
    assert (done.stdout, again.stdout) == ("", "")
    assert f"its secret is in {first}" in done.stderr
    assert TEXT.search(done.stderr + again.stderr) is None


def test_token_out_option_with_json_names_the_file_and_not_the_secret(file: str, tmp_path: Path) -> None:
    path = tmp_path / "ci-token"
    body = json.loads(holdlog(file, "create", "--name", "ci", "--allow", "read:*", "--json", "--out", str(path)).stdout)
    assert (body["name"], body["out"], "token" in body) == ("ci", str(path), False)
    assert TEXT.fullmatch(path.read_text().rstrip("\n"))


@pytest.mark.parametrize("kind", ["a file", "a link", "a link to nothing", "a missing folder", "a folder"])
def test_token_out_option_refuses_existing_files_and_links_and_makes_no_token(
    file: str, tmp_path: Path, kind: str
) -> None:
    path, target = tmp_path / "out", tmp_path / "target"
    match kind:
        case "a file":
            path.write_text("mine")
        case "a link":
            target.write_text("mine")
            path.symlink_to(target)
        case "a link to nothing":
            path.symlink_to(target)
        case "a folder":
            path.mkdir()
        case _:
            path = tmp_path / "none" / "out"
    create(file, name="other")
    for arguments in (["create", "--name", "ci", "--allow", "read:*"], ["rotate", "other"]):
        done = holdlog(file, *arguments, "--out", str(path), code=2)
        (line,) = done.stderr.splitlines()
        assert f"--out: {path} " in line
    assert [(it["name"], it["rotated_at"]) for it in listed(file)] == [("other", None)]
    assert "mine" in [it.read_text() for it in (path, target) if it.is_file()] or not target.exists()


def test_token_out_option_leaves_no_file_when_no_token_was_made(file: str, tmp_path: Path) -> None:
    create(file)
    path = tmp_path / "out"
    for arguments in (["create", "--name", "ci", "--allow", "read:*"], ["rotate", "nobody"]):
        holdlog(file, *arguments, "--out", str(path), code=1)
        assert not path.exists()


@pytest.mark.check
@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o640, True), (0o600, False)])
def test_redirecting_a_token_into_a_readable_file_prints_a_warning(
    file: str, tmp_path: Path, mode: int, warned: bool
) -> None:
    path = tmp_path / "ci-token"
    path.touch()
    path.chmod(mode)
    command = [sys.executable, "-m", "holdlog", "token", "create", "--name", "ci", "--allow", "read:*", "--db", file]
    with path.open("w") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert TEXT.fullmatch(path.read_text().rstrip("\n"))
    assert ("other users can read" in done.stderr) is warned
    assert ("--out FILE" in done.stderr) is warned


async def test_rotated_token_gets_a_new_secret_and_the_old_one_lasts_a_while(db: str) -> None:
    old = create(db)
    done = holdlog(db, "rotate", "ci", "--overlap", "1h")
    new = done.stdout.strip()
    assert TEXT.fullmatch(new)
    assert "the old one is valid until" in done.stderr
    assert [await principal_of(db, it) for it in (old, new)] == ["token:ci", "token:ci"]
    newest = holdlog(db, "rotate", "ci")
    assert "the old one is no longer valid" in newest.stderr
    assert [await principal_of(db, it) for it in (old, new, newest.stdout.strip())] == [None, None, "token:ci"]


async def test_revoked_token_grants_no_access_and_revoking_again_is_no_error(db: str) -> None:
    text = create(db)
    assert holdlog(db, "revoke", "ci").stdout == "token ci is revoked\n"
    assert await principal_of(db, text) is None
    assert holdlog(db, "revoke", "ci").stdout.startswith("token ci was revoked ")
    assert json.loads(holdlog(db, "revoke", "ci", "--json").stdout)["already"] is True


def test_token_list_shows_everything_but_secrets(file: str) -> None:
    texts = [
        create(file, "--expires", "never", name="b", allow="admin:*"),
        create(file, "--space", "team", "--expires", "12h", name="a-1"),
        holdlog(file, "rotate", "b", "--by", "ann").stdout.strip(),
        create(file, name="gone"),
    ]
    holdlog(file, "revoke", "gone")
    table = holdlog(file, "list").stdout
    first, second, third = table.splitlines()
    assert re.fullmatch(r"a-1 +read:\* \(values, claims and threads\) +expires in 11 h 59 min +space team", first)
    assert re.fullmatch(r"b +admin:\* +never expires +rotated [-0-9:. ]+ UTC", second)
    assert re.fullmatch(r"gone +read:\* \(values, claims and threads\) +revoked [-0-9:. ]+ UTC", third)
    rows = listed(file)
    assert [(it["name"], it["state"], it["space"]) for it in rows] == [
        ("a-1", "active", "team"),
        ("b", "active", None),
        ("gone", "revoked", None),
    ]
    assert rows[1]["expires_at"] is None
    assert rows[1]["rotated_at"] is not None
    assert 12 * 3600 - 60 < rows[0]["expires_in_seconds"] <= 12 * 3600
    everything = table + json.dumps(rows)
    assert not any(part in everything for text in texts for part in (text, hash_of(text)))


def test_token_list_shows_which_grants_cover_names_of_several_kinds(file: str) -> None:
    holdlog(
        file, "create", "--name", "old", "--allow", "read:docs-*", "--allow", "write:values:x", "--allow", "claim:a"
    )
    holdlog(file, "create", "--name", "new", "--allow", "read-values:docs-*", "--allow", "metrics:*")
    new, old = holdlog(file, "list").stdout.splitlines()
    assert "read-values:docs-*, metrics:*  " in new
    assert "read:docs-* (values, claims and threads), " in old
    assert "write:values:x (values and threads; reads claims), claim:a  " in old
    assert [it.get("covers") for it in listed(file)] == [
        {},
        {"read:docs-*": "values, claims and threads", "write:values:x": "values and threads; reads claims"},
    ]


def test_token_named_like_this_user_is_refused_and_an_older_one_marked(file: str) -> None:
    from holdlog.adapters.auth.tokens import fresh
    from holdlog.domain.message import NOBODY
    from holdlog.domain.token import IssueToken

    user = getpass.getuser()
    refused = holdlog(file, "create", "--name", user, "--allow", "read:*", code=2)
    assert f"choose another one, for example {user}-laptop" in refused.stderr
    assert not Path(file).exists()
    engine = open_holdlog(Path(file))
    engine.change_token(IssueToken(name=user, hash=fresh(user).hash, allow=("claim:*",), by="ann"), NOBODY)
    engine.close()
    create(file)
    ci, own = sorted(holdlog(file, "list").stdout.splitlines(), key=lambda line: line.startswith(user))
    assert own.endswith("has your user name")
    assert "user name" not in ci
    assert {it["name"]: it["has_local_name"] for it in listed(file)} == {user: True, "ci": False}


@pytest.mark.check
def test_doctor_log_and_history_show_no_token_hash(file: str) -> None:
    text = create(file)
    environ = {name: it for name, it in os.environ.items() if not name.startswith("HOLDLOG")}
    for arguments in (["doctor", "--json"], ["list"], ["claims", "--json"], ["agents"], ["rebuild"]):
        command = [sys.executable, "-m", "holdlog", *arguments, "--db", file]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60)
        assert done.returncode == 0, done.stderr
        assert hash_of(text) not in done.stdout + done.stderr
        assert text not in done.stdout + done.stderr


def test_token_command_prints_json_with_token_and_grants(file: str) -> None:
    body = json.loads(create(file, "--json", "--expires", "1h"))
    assert TEXT.fullmatch(body["token"])
    assert (body["name"], body["allow"], body["expires_in_seconds"]) == ("ci", ["read:*"], 3600.0)
    again = json.loads(holdlog(file, "rotate", "ci", "--json").stdout)
    assert again["token"] != body["token"]
    assert again["rotated_at"] is not None


def test_token_expires_by_default(file: str) -> None:
    create(file)
    assert listed(file)[0]["expires_in_seconds"] > 89 * 86_400


@pytest.mark.check
@pytest.mark.parametrize(
    ("arguments", "told", "code"),
    [
        (["create", "--name", "ci", "--allow", "read:*"], "a token with this name exists", 1),
        (["revoke", "other"], "token other does not exist", 1),
        (["rotate", "other"], "token other does not exist", 1),
        (["rotate", "gone"], "was revoked; issue it again", 1),
        (["create", "--name", "CI", "--allow", "read:*"], "name: must have 1 to 64", 2),
        (["create", "--name", "x", "--allow", "see:*"], "--allow: must be read, write, claim, admin, read-values", 2),
        (["create", "--name", "x", "--allow", "read:"], "--allow: must not be blank", 2),
        (["create", "--name", "x"], "--allow", 2),
        (["create", "--allow", "read:*"], "--name", 2),
        (["create", "--name", "x", "--allow", "read:*", "--space", "../x"], "--space: must have", 2),
        (["create", "--name", "x", "--allow", "read:*", "--expires", "0d"], "--expires: must be a number with", 2),
        (["create", "--name", "x", "--allow", "read:*", "--expires", "9999d"], "--expires: must be", 2),
        (["create", "--name", "x", "--allow", "read:*", "--expires", "soon"], "--expires: must be", 2),
        (["create", "--name", "x", "--allow", "read:*", "--expires", "\u0663d"], "--expires: must be", 2),
        (["rotate", "ci", "--overlap", "60d"], "--overlap: must be less", 2),
        ([], "ACTION", 2),
    ],
)
def test_invalid_token_arguments_are_refused_in_one_line(file: str, arguments: list[str], told: str, code: int) -> None:
    create(file)
    create(file, name="gone")
    holdlog(file, "revoke", "gone")
    done = holdlog(file, *arguments, code=code)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert told in line


def test_token_commands_other_than_create_do_not_create_a_store(file: str) -> None:
    for arguments in (["list"], ["revoke", "ci"], ["rotate", "ci"]):
        assert "there is no store" in holdlog(file, *arguments, code=1).stderr
        assert not Path(file).exists()
    assert (
        "a store in :memory: ends with its process"
        in holdlog(":memory:", "create", "--name", "x", "--allow", "read:*", code=2).stderr
    )


@pytest.mark.check
@pytest.mark.parametrize("action", [[], ["create"], ["list"], ["revoke"], ["rotate"]])
def test_help_of_token_has_an_example(file: str, action: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdlog", "token", *action, "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert "example" in done.stdout
