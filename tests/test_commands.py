"""The command line beyond the doors: audit, transfer, threads, and what results look like."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdlog
from holdlog.adapters.cli.commands import DERIVED
from holdlog.adapters.cli.derived import build_parser
from tests.support.programs import HOLDLOG, Done, environment, python, run

pytestmark = pytest.mark.rest

BY = ("--by", "ann")


@pytest.fixture
def call(tmp_path: Path):
    (tmp_path / "work").mkdir()

    def call(*words: str | Path, stdin: str = "", **env: str) -> Done:
        env = {"HOLDLOG_DB": str(tmp_path / "state.db"), "XDG_STATE_HOME": str(tmp_path / "state")} | env
        return run(*words, stdin=stdin, env=env, cwd=tmp_path / "work")

    assert call("set", "n", "k", "1", "--version", "0", *BY).code == 0
    return call


def test_log_is_verified_against_a_checkpoint_in_a_file(call, tmp_path):
    (tmp_path / "kept").write_text(call("checkpoint").out)
    assert call("set", "n", "k", "2", "--version", "1", *BY).code == 0
    assert call("verify", "--checkpoint", tmp_path / "kept", "--json").json["checkpoint"] == 1
    (tmp_path / "kept").write_text(f"1 {'0' * 64}\n")
    refused = call("verify", "--checkpoint", tmp_path / "kept")
    problem = "damaged: position 1: the log has another history than the checkpoint\n"
    assert (refused.code, refused.out, refused.err) == (1, "", problem)


def test_line_of_a_refusal_names_what_was_refused(call):
    assert call("claim", "custom://a", "--agent", "ann").code == 0
    assert call("claim", "custom://a", "--agent", "bob").code == 1
    assert call("set", "n", "k", "1", "--version", "7").code == 1
    texts = [line.partition(" was ")[2] for line in call("log", "--refusals").out.splitlines() if line.startswith("-")]
    assert texts == ["refused (busy): custom://a: held by ann", "refused (conflict): n/k: expected version 7, found 1"]


def test_log_without_a_matching_event_does_not_advise_to_begin(call):
    assert call("claim", "custom://a", "--agent", "ann").code == 0
    assert call("log", "--agent", "eve").err == "holdlog: no such events\n"
    unknown = call("log", "--resource", "custom://b")
    assert unknown.err == "holdlog: the log has no event of custom://b; to see what it has: holdlog log --last 20\n"


def test_log_moves_to_another_store_and_a_copy_is_a_store(call, tmp_path):
    exported = call("export").out
    assert call("import", "-", "--db", tmp_path / "new.db", stdin=exported).code == 0
    (tmp_path / "copies").mkdir(0o700)
    copy = call("backup", tmp_path / "copies", "--json").json["path"]
    for place in (tmp_path / "new.db", copy):
        assert call("get", "n", "k", "--db", place).out == "1\n"
    assert " the log of store " in call("log", "--last", "1", "--db", tmp_path / "new.db").out
    again = call("import", "-", "--db", tmp_path / "new.db", stdin=exported)
    assert (again.code != 0, again.err.count("\n"), (tmp_path / "new.db").exists()) == (True, 1, True)


def test_namespace_is_exported_with_its_histories(call):
    assert call("set", "n", "k", "2", "--version", "1", *BY).code == 0
    (record,) = call("export", "n").json["records"]
    assert [entry["value"] for entry in record["history"]] == [2, 1]


def test_former_text_is_redacted_and_a_current_one_is_not(call):
    refused = call("redact", "record:n/k@1", "--reason", "leaked")
    assert (refused.code, refused.err[:34]) == (1, "holdlog: record:n/k@1 is a current")
    assert call("set", "n", "k", "2", "--version", "1", *BY).code == 0
    assert call("redact", "record:n/k@1", "--reason", "leaked").code == 0
    assert call("history", "n", "k", "--json").json["history"][1]["event_type"] == "redact"
    assert call("log", "--last", "1").out.endswith(" TextsRedacted positions [1] (leaked)\n")


def test_thread_is_appended_to_and_read(call, tmp_path):
    (tmp_path / "results.json").write_text(json.dumps([{"agent_name": "writer", "output": []}]))
    assert call("thread", "append", "run-7", "which file?", "--agent", "ann").code == 0
    assert call("thread", "append", "run-7", "--results", tmp_path / "results.json", "--agent", "ann").code == 0
    lines = call("thread", "read", "run-7").out.splitlines()
    assert [line.split("  ")[-1] for line in lines] == ["user: which file?", "result of writer"]
    missing = call("thread", "read", "other")
    assert (missing.code, missing.out) == (1, "")
    elsewhere = call("--db", tmp_path / "read", "thread", "read", "run-7")
    assert "there is no store at" in elsewhere.err
    assert call("--db", tmp_path / "state.db", "thread", "read", "run-7").out.splitlines() == lines


def test_option_of_http_is_refused_over_stdio(call):
    done = call("serve", "--port", "0")
    assert (done.code, done.err) == (2, "holdlog: --port: needs --transport http\n")


def test_commands_of_one_terminal_or_parent_are_one_holder(call):
    assert call("claim", "custom://a", "--agent", "ann").code == 0
    assert call("claim", "custom://a", "--agent", "ann").out.startswith("already_claimed: ")
    assert call("release", "custom://a", "--agent", "ann").code == 0


def test_repeated_request_is_done_once(call):
    words = ("update", "n", "k", "--increment", "1", "--request-id", "r-1", *BY)
    assert [call(*words).out for _ in range(2)] == ["2\n", "2\n"]
    assert call("get", "n", "k").out == "2\n"


def test_store_is_named_by_a_file_for_secrets(call, tmp_path):
    (tmp_path / "place").write_text(f"{tmp_path / 'state.db'}\n")
    found = call("get", "n", "k", HOLDLOG_DB="", HOLDLOG_DB_FILE=str(tmp_path / "place"))
    assert found.out == "1\n"
    refused = call("get", "n", "k", HOLDLOG_DB="", HOLDLOG_DB_FILE=os.devnull)
    assert (refused.code, refused.err.count("\n"), "HOLDLOG_DB_FILE" in refused.err) == (2, 1, True)


def test_person_ends_a_claim_that_covers_a_file_by_its_own_name_only(call, tmp_path):
    with holdlog.StateStore(tmp_path / "state.db") as store:
        store.claim("src/", agent="ann")
        refused = call("release", "src/a.py", "--force", "--reason", "gone")
        assert refused.code == 1
        assert store.status("src/").held_by == "ann"
    assert call("release", "src/", "--force", "--reason", "gone").code == 0


def test_get_loads_the_values_of_holdlog_and_no_library_but_pydantic(call, tmp_path):
    program = """
import sys
from holdlog.__main__ import main
sys.argv = ["holdlog", "--db", sys.argv[1], "get", "n", "k"]
before = set(sys.modules)
main()
for name in sorted(set(sys.modules) - before):
    print(name if name.startswith("holdlog.adapters.") else name.partition(".")[0])
"""
    value, *loaded = python(program, tmp_path / "state.db")
    assert value == "1"
    expected = {"annotated_types", "holdlog", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}
    assert {it for it in loaded if it[0] != "_" and "." not in it} - sys.stdlib_module_names == expected
    assert {"asyncio", "multiprocessing", "ssl"}.isdisjoint(loaded)
    operations = {it.rpartition(".")[2] for it in loaded if it.startswith("holdlog.adapters.operations.")}
    assert operations == {"base", "claims", "json", "rows", "steps", "surface", "values"}


@pytest.mark.parametrize("words", [("history", "n", "k"), ("at", "3", "n"), ("diff", "1", "now", "n"), ("list",)])
def test_page_for_people_says_that_there_are_more_and_how_to_read_on(call, words):
    assert call("set", "n", "k", "2", "--version", "1", *BY).code == 0
    for namespace, key in (("n", "l"), ("o", "m")):
        assert call("set", namespace, key, "2", "--version", "0", *BY).code == 0
    note = call(*words, "--limit", "1").err
    option, place = note.removeprefix("holdlog: there are more; to read on, pass ").split()
    following = call(*words, "--limit", "1", option, place)
    assert (following.code, following.err, following.out != call(*words, "--limit", "1").out) == (0, "", True)
    assert "there are more" not in call(*words, "--limit", "1", "--json").err


def test_results_without_a_format_of_their_own_are_tables_with_headings(call):
    assert call("set", "n", "l", '{"a": [1]}', "--version", "0", *BY).code == 0
    heading, row = call("diff", "1", "now", "n").out.splitlines()[-2:]
    assert (heading.split("  ")[:2], row.split()[:2]) == (["KEY", "CHANGE"], ["l", "added"])
    assert call("set", "n", "l", '{"b": 2, "a": [3]}', "--version", "1", *BY).code == 0
    assert call("diff", "v1", "now", "n", "l").out.endswith("  /a/0: 1 -> 3; /b added: 2\n")
    assert call("set", "n", "l", '{"a": [1]}', "--version", "2", *BY).code == 0
    assert call("diff", "v2", "now", "n", "l").out.endswith("  /a/0: 3 -> 1; /b removed: 2\n")
    lines = call("blame", "n", "k").out.splitlines()
    assert (lines[0], lines[3], lines[4][:10]) == ("namespace   n", "updated by  ann", "updated at")
    assert lines[4].endswith(" UTC")
    assert call("at", "now", "n").out.splitlines() == ["k  v1  ann  1", 'l  v3  ann  {"a": [1]}']
    replayed = call("replay", "1").out
    assert ('n          l    {"a": [1]}  3 ' in replayed, "claims:\nnothing was found" in replayed) == (True, True)
    assert call("clear", "n", *BY).out.splitlines()[2] == "deleted keys   k; l"


def test_verify_says_how_many_events_are_whole_and_the_digest(call):
    text, digest = call("verify").out, call("checkpoint").out.split()[1]
    assert (text.startswith("the log is whole: 1 events, the last at "), text.endswith(f" digest {digest}\n")) == (
        True,
        True,
    )


@pytest.mark.parametrize("words", [("blame", "a.py"), ("token", "list")])
def test_empty_result_says_that_nothing_was_found(call, words):
    done = call(*words)
    assert (done.code, done.out.splitlines()[-1]) == (0, "nothing was found")


@pytest.mark.parametrize("option", ["--session", "--correlation"])
def test_revert_of_an_unknown_session_says_where_to_find_those_that_are_known(call, option):
    (line,) = call("revert", option, "mistyped", *BY).out.splitlines()
    start, _, command = line.partition("; to see whose a value is: holdlog ")
    assert (start, command) == (
        "no such write of this session or task is known",
        "blame NAMESPACE KEY",
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("claims", "--limit", "x"), "--limit: must be a whole number"),
        (("claims", "--limit", "1.5"), "--limit: must be a whole number"),
        (("claims", "--limit", "5000"), "--limit: must be less than or equal to 1000"),
        (("watch", "n", "k", "--timeout", "x"), "--timeout: must be a valid number"),
        (("claim", "a", *["--also", "b"] * 100), "--also: must have at most 99 items"),
        (
            ("diff", "1", "now"),
            "holdlog diff: the following arguments are required: NAMESPACE (see holdlog diff --help)",
        ),
        (("redact", "n/k@1", "--reason", "x"), "EVENT: the log has no such event; an id is like record:order-1/card@3"),
        (("log", "--kinds", "x"), "--kinds: must be of record, claim, thread, token, or an event such as ValueWritten"),
    ],
)
def test_wrong_argument_is_named_as_its_option_in_plain_words(call, words, problem):
    refused = call(*words)
    assert (refused.code, refused.err) == (2, f"holdlog: {problem}\n".replace("holdlog: holdlog", "holdlog"))


def test_help_says_what_a_file_holds_and_what_happens_without_an_option(call):
    assert '"op": "increment"' in call("transact", "--help").out
    assert "--checkpoint FILE" in call("verify", "--help").out
    assert "holdlog; with NAMESPACE" in call("export", "--help", COLUMNS="80").out
    assert "default: 0, which returns" in " ".join(call("watch", "--help").out.split())


def test_store_with_a_mistyped_name_is_not_read_and_its_creation_is_reported_once(call, tmp_path):
    place = tmp_path / "stat.db"
    for words in (("get", "n", "k"), ("claims",), ("revert", "--session", "x", *BY), ("token", "list")):
        refused = call(*words, "--db", place)
        assert (refused.code, refused.err.count("\n"), place.exists()) == (1, 1, False), words
    notes = [call("set", "n", "k", "1", "--force", *BY, "--db", place).err for _ in range(2)]
    assert notes == [f"holdlog: created the store {place}\n", ""]


def test_claim_of_the_bare_name_of_a_folder_hints_at_the_slash(call, tmp_path):
    (tmp_path / "work" / "src").mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path / "work", check=True)
    for words in (("src",), ("src/",), ("a.py", "--also", "src")):
        claimed = call("claim", *words, "--agent", "ann", "--json").json
        assert (claimed["status"], claimed.get("hint", "").endswith(" at the end: src/")) == ("claimed", "src" in words)
        assert call("release", "--agent", "ann").code == 0


def test_new_repository_without_commits_has_no_problem_with_its_policy(call, tmp_path):
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path / "work", check=True)
    done = call("check", "a.py")
    assert (done.code, done.out, done.err) == (0, "ok: no other session holds this\n", "")


def test_policy_that_git_cannot_read_says_why(call, tmp_path):
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path / "work", check=True)
    (tmp_path / "work" / "holdlog.toml").write_text("")
    warning = call("check", "a.py", PATH=str(tmp_path)).err
    assert "holdlog.toml: is not in force: [Errno 2] No such file or directory: 'git'" in warning


def test_doctor_says_which_program_hosts_look_for(call, tmp_path):
    assert call("init", "--client", "cursor", "--yes").code == 0
    found = call("doctor", "--client", "cursor").out
    assert re.search(r"the server starts, with \d+ tools \(/.*/holdlog\)", found), found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes mounts")
def test_command_that_begins_on_a_full_disk_says_that_it_is_full(tmp_path):
    script = (
        'mount -t tmpfs -o size=256k none "$0" && cd "$0" && "$1" set n k 1 --version 0 --by ann --db s.db'
        ' && cat /dev/zero > filler; "$1" get n k --db s.db'
    )
    command = ["unshare", "-m", "sh", "-c", script, tmp_path, HOLDLOG]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1].endswith("s.db is full; free some space, and try again"), done


def test_doctor_of_a_damaged_file_does_not_advise_to_run_doctor(call, tmp_path):
    (tmp_path / "state.db").write_bytes(b"x" * 4096)
    done = call("doctor")
    assert (done.code, "is damaged" in done.out, "run `holdlog doctor`" in done.out) == (1, True, False)


UNEXPLAINED = {"--namespace", "--prefix"}
"""Options whose name says all."""


@pytest.mark.parametrize("command", [*DERIVED])
def test_help_explains_every_option(command):
    options = {it.option_strings[-1]: it.help for it in build_parser(command)._actions if it.option_strings}
    assert {name for name, text in options.items() if not text} <= UNEXPLAINED
