"""The command line: results for people and programs, exit codes, one-line errors, and how a command ends."""

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from select import select
from typing import Any

import pytest

import holdlog
from tests.support.programs import HOLDLOG, environment, run
from tests.support.waiting import PATIENCE, until

rest = pytest.mark.rest
BY = ("--updated-by", "ann")
ANN, BOB = ("--agent", "ann", "--session", "s-1"), ("--agent", "bob", "--session", "s-2")
WORDS = """
get set delete clear list update transact watch claim release status wait claims history at blame diff revert replay
thread serve demo init hook doctor check run commit log verify checkpoint redact export import backup relay subscribe
token completion
"""
COMMANDS = {*WORDS.split()}
JSON_TOO = {"get", "set", "claim", "release", "claims", "history", "log", "doctor", "check"}
TIME = r"\d\d:\d\d:\d\d\.\d{3} UTC"


def one_line(done: Any, *, code: int = 2) -> bool:
    return (done.code, done.out, done.err.count("\n"), "Traceback" in done.err) == (code, "", 1, False)


# --- results


def test_claims_are_sentences_that_begin_with_their_status(command):
    assert command("claim", "custom://a", *ANN) == (0, "claimed custom://a (version 1)\n", "")
    busy = command("claim", "custom://a", *BOB)
    assert (busy.code, busy.out) == (1, "")
    first, advice = busy.err.splitlines()[0], busy.err.splitlines()[-1]
    assert re.fullmatch(rf"busy: custom://a is held by ann since {TIME} \(\d+ s\).*", first)
    assert "holdlog claim again with --wait 30" in advice
    assert re.match(r"custom://a  ann  ", command("claims").out)
    assert command("release", "custom://a", *ANN).out == "released custom://a (version 2)\n"


@rest
def test_rarer_results_of_claims_say_what_is_the_case(command):
    assert command("claim", "custom://h", *ANN).code == 0
    again = command("claim", "custom://h", *ANN, "--note", "ten more minutes").out
    assert re.match(rf"already_claimed: you hold custom://h since {TIME} \(version 1\)\n", again)
    assert re.match(rf"claimed: custom://h is held by ann since {TIME}", command("status", "custom://h").out)
    timeout = command("wait", "custom://h", "--timeout-seconds", "0")
    assert (timeout.code, timeout.err[:8]) == (1, "timeout:")
    assert "holdlog claim custom://h --wait 30" in timeout.err
    refused = command("release", "custom://h", *BOB)
    assert (refused.code, refused.err.splitlines()[0]) == (1, "not_holder: custom://h is held by ann")
    assert "holdlog release custom://h --force --reason TEXT" in refused.err
    assert command("claim", "custom://a", *ANN, "--also", "custom://b").out.count("custom://") == 2
    shared = command("claim", "custom://s", *ANN, "--mode", "shared", "--lease-seconds", "600", "--json").json
    assert 590 < shared["expires_in_seconds"] <= 600
    assert command("claim", "custom://s", *BOB, "--mode", "shared").code == 0
    assert command("status", "custom://s", "--json").json["holders"] == ["ann", "bob"]
    assert command("release", *ANN).out.count("released") >= 1
    assert command("release", "custom://a", *ANN).out == "already_free custom://a\n"
    assert re.match(r"available: custom://a \(released by ann at ", command("status", "custom://a").out)
    assert command("wait", "custom://a").code == 0
    assert command("status", "custom://new").out == "available custom://new\n"
    missing = command("release", "custom://new", *ANN)
    assert (missing.code, missing.err.splitlines()[0]) == (1, "not_found: custom://new was never claimed")


def test_values_are_printed_alone_and_refusals_begin_with_their_status(command):
    assert command("set", "n", "k", '{"a": [1, null]}', "--expected-version", "0", *BY) == (0, "version 1\n", "")
    assert json.loads(command("get", "n", "k").out) == {"a": [1, None]}
    refused = command("set", "n", "k", "2", "--expected-version", "0", *BY)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("conflict: n/k is at version 1 by ann, not 0: ")
    assert refused.err.endswith("holdlog set n k VALUE --version 1\n")
    assert re.match(r"k  v1  ann  ", command("list", "n").out)


@rest
def test_rarer_results_of_values(command):
    assert command("update", "n", "count", "--increment", "2", *BY).out == "2\n"
    missing = command("get", "n", "none")
    assert (missing.code, missing.err.splitlines()[0]) == (1, "not_found: n/none has no value")
    assert re.match(rf"v1  write  ann  \d{{4}}-\d\d-\d\d {TIME}  ", command("history", "n", "count").out)
    assert command("set", "n", "k", "text", "--force", *BY, "--ttl-seconds", "3600", "--reason", "why").code == 0
    assert command("get", "n", "k").out.splitlines()[0] == '"text"'
    assert command("get", "n", "k", "--json").json["expires_in_seconds"] > 3000
    timeout = command("watch", "n", "k", "--since", "1", "--timeout-seconds", "0")
    assert (timeout.code, timeout.err.startswith("timeout: ")) == (1, True)
    assert command("delete", "n", "k", "--expected-version", "9", "--deleted-by", "ann").code == 1
    assert command("delete", "n", "k", "--expected-version", "1", "--deleted-by", "ann").code == 0
    assert command("get", "n", "k").err.startswith("not_found: n/k was deleted by ann at ")
    assert not re.search(r"^n  [2-9]", command("list").out, re.MULTILINE)


def test_clear_deletes_a_namespace(command):
    assert command("set", "n", "k", "1", "--expected-version", "0", *BY).code == 0
    assert command("clear", "n", "--deleted-by", "ann").code == 0
    assert command("list", "n", "--json").json["count"] == 0


def test_json_is_the_result_of_the_tool(command):
    assert command("claim", "custom://a", *ANN, "--json").json["status"] == "claimed"
    busy = command("claim", "custom://a", *BOB, "--json")
    assert (busy.code, busy.err) == (1, "")
    assert busy.json | {"status": "busy", "resource": "custom://a", "held_by": "ann", "version": 1} == busy.json
    assert "holdlog_wait" in busy.json["hint"] or "wait" in busy.json["hint"]
    missing = command("get", "n", "k", "--json")
    assert (missing.code, missing.json["status"]) == (1, "not_found")


@rest
def test_transaction_is_read_from_a_file_or_standard_input(command, tmp_path):
    steps = [
        {"op": "set", "namespace": "n", "key": "a", "value": 1},
        {"op": "increment", "namespace": "n", "key": "b", "by": 2},
    ]
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    assert command("transact", tmp_path / "steps.json", *BY, "--json").json["status"] == "ok"
    assert command("transact", "-", *BY, stdin=json.dumps(steps[1:])).code == 0
    assert command("get", "n", "b").out == "4\n"
    steps[0]["expected_version"] = 7
    refused = command("transact", "-", *BY, stdin=json.dumps(steps), env={})
    assert (refused.code, refused.out) == (1, "")
    assert command("get", "n", "b").out == "4\n"
    for name in ("none.json", "."):
        assert one_line(command("transact", tmp_path / name, *BY))


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("-5", -5),
        ("-1e5", -1e5),
        pytest.param("-2.5E-3", -2.5e-3, marks=rest),
        pytest.param("plain text", "plain text", marks=rest),
        pytest.param("null", None, marks=rest),
        pytest.param("01", "01", marks=rest),
    ],
)
def test_value_is_json_or_text(command, value, stored):
    """Field case 20 among them."""
    assert command("set", "n", "k", value, "--expected-version", "0", *BY).code == 0
    assert command("get", "n", "k", "--json").json["value"] == stored


@rest
@pytest.mark.parametrize("value", ["{'bad'", "[1, 2", '"open', "[" * 100_000])
def test_value_that_looks_like_json_must_be_json(command, value, db):
    refused = command("set", "n", "k", value, "--expected-version", "0", *BY)
    assert (one_line(refused), "VALUE: " in refused.err, db.exists()) == (True, True, False)


@rest
def test_terminal_control_characters_are_escaped(command):
    hostile = "a\x1b[2J\x7f\x9b31m\u202egnp\u2066b"
    value = json.dumps({"text": hostile})
    assert command("set", "n", "k", value, "--expected-version", "0", *BY).code == 0
    for words in (("get", "n", "k"), ("list", "n"), ("history", "n", "k"), ("log",), ("get", hostile, "k"), (hostile,)):
        for form in ((), ("--json",)):
            done = command(*words, *form)
            assert all(line.isprintable() for line in (done.out + done.err).split("\n")), words
    assert command("get", "n", "k", "--json").json["value"] == {"text": hostile}
    assert json.loads(command("get", "n", "k").out) == {"text": hostile}


def test_export_has_no_raw_control_characters_and_is_imported_byte_for_byte(command, tmp_path):
    value = "a\x1b[2J\x7f\x9b31m\u202egnp\\\x9b\u2028\ue000\U000e0001 é 😀"
    assert command("set", "n", "k", json.dumps(value), "--expected-version", "0", *BY).code == 0
    exported, copy = command("export").out, ("--db", tmp_path / "copy.db")
    assert ("é 😀" in exported, all(line.isprintable() for line in exported.split("\n"))) == (True, True)
    assert run("import", "-", *copy, stdin=exported).code == 0
    assert run("get", "n", "k", "--json", *copy).json["value"] == value
    assert run("export", *copy).out.split("\n")[1] == exported.split("\n")[1]


# --- bad arguments


@pytest.mark.parametrize(
    ("line", "guess"),
    [
        ("clams", "claims"),
        ("log --follwo", "--follow"),
        pytest.param("--db x.db clams --help", "claims", marks=rest),
        pytest.param("--verson", "--version", marks=rest),
        pytest.param("serve --transprot=http", "--transport", marks=rest),
        pytest.param("--transprot http", "--transport", marks=rest),
        pytest.param("set n k 1 --version 0 --agent ann", "--by", marks=rest),
        pytest.param("token creat", "create", marks=rest),
        pytest.param("thread raed", "read", marks=rest),
        pytest.param("claim x --mode share", "shared", marks=rest),
        pytest.param("log --foll", "--follow", marks=rest),
    ],
)
def test_misspelt_word_is_refused_with_what_was_meant(line, guess, command):
    refused = command(*line.split())
    assert one_line(refused), refused
    assert f"did you mean {guess}?" in refused.err


@rest
def test_by_names_the_agent_of_a_claim(command):
    assert command("claim", "custom://x", "--by", "ann").code == 0


@rest
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("get n", "KEY"),
        ("get", "NS|NAMESPACE|KEY"),
        ("xyz", "unknown command"),
        ("set n k 1", "--version"),
        ("set n k 1 --version x", "--version"),
        ("set n k 1 --version -1", "version"),
        ("set n k 1 --version 0 --ttl 0", "--ttl"),
        ("claim ../x --agent a", "RESOURCE|resource"),
        ("claim src/*.py --agent a", r"\*"),
        ("claim x --agent a --wait -1", "--wait"),
        ("claim x --agent a --lease soon", "--lease"),
        ("claim x --agent a --session receipt-1", "--session"),
        ("release custom://a --agent ann --outcome moved", "--moved-to"),
        ("release custom://a --force", "--reason"),
        ("--lease-seconds 100 claim x", "--db"),
        ("serve --lease-seconds 0", "--lease-seconds"),
        ("serve --port x", "--port"),
        ("serve --transport htp", "--transport"),
        ("serve --idle-limit nan", "--idle-limit"),
        ("list n --limit 0", "--limit"),
        ("at 999", "999|position"),
        ("diff 5 x n", "FROM|TO|MOMENT"),
        ("completion tcsh", "bash"),
        ("redact n --reason why", "STREAM|@|NAME|KEY"),
        ("run --claim custom://m", "COMMAND"),
        ("check", "--staged"),
    ],
)
def test_bad_argument_is_refused_in_one_line_that_names_it(line, words, command, db):
    holdlog.StateStore(db).close()
    refused = command(*line.split())
    assert one_line(refused), refused
    assert re.search(words, refused.err), refused.err


@rest
def test_bad_setting_names_its_variable(command):
    for variable, value in {"LEASE_SECONDS": "foo", "MAX_WAIT": "-1", "TRANSPORT": "htp", "TOOLS": "stat"}.items():
        refused = command("serve", env={f"HOLDLOG_{variable}": value})
        assert one_line(refused), refused
        assert f"HOLDLOG_{variable}" in refused.err or variable == "TOOLS"


@rest
def test_password_of_a_database_is_masked(command):
    for words in (("get", "n", "k"), ("doctor",), ("serve",)):
        refused = command(*words, "--db", "postgresql://ann:s3cr3t@127.0.0.1:1/x")
        assert (refused.code in (1, 2), "s3cr3t" in refused.out + refused.err) == (True, False)
        assert "Traceback" not in refused.err


@rest
def test_environment_names_agent_and_session(command):
    env = {"HOLDLOG_AGENT": "zoe", "HOLDLOG_SESSION": "s-9"}
    assert command("claim", "custom://a", env=env).code == 0
    assert command("status", "custom://a", "--json").json["held_by"] == "zoe"
    assert command("release", "custom://a", env=env).code == 0


@rest
@pytest.mark.parametrize(
    "how",
    ["option", "variable"],
)
def test_claim_of_a_named_session_is_not_released_by_another_one(command, how):
    def call(word: str, session: str) -> int:
        words, env = (["--session", session], {}) if how == "option" else ([], {"HOLDLOG_SESSION": session})
        return int(command(word, "custom://a", "--agent", "ann", *words, env=env).code)

    assert [call("claim", "s-1"), call("release", "s-2"), call("release", "s-1")] == [0, 1, 0]


# --- help


def test_help_lists_every_command_and_version_is_printed():
    text = run("--help").out
    listed = set(re.findall(r"^  ([a-z]+) +\S", text, re.MULTILINE))
    assert listed >= COMMANDS
    assert ("examples:" in text, "HOLDLOG_DB" in text) == (True, True)
    assert run("--version").out == f"holdlog {holdlog.__version__}\n"


@rest
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_of_a_command_has_an_example(name):
    done = run(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert re.search(rf"^examples?:\n +holdlog {name}\b", done.out, re.MULTILINE)
    assert "--db" in done.out or name in ("demo", "completion", "init", "thread", "token")
    assert "--json" in done.out or name not in JSON_TOO


@rest
def test_completion_scripts_name_commands_and_options():
    for shell in ("bash", "zsh", "fish"):
        script = run("completion", shell, env={"HOLDLOG_AGENT": "SECRET"}).out
        assert ("claims" in script, "db" in script, "SECRET" in script) == (True, True, False)
    check = subprocess.run(
        ["bash", "-n"], input=run("completion", "bash").out, text=True, check=False, capture_output=True
    )
    assert (check.returncode, check.stderr) == (0, "")


# --- how a command ends


def start(db: Path, *words: str, **options: Any) -> "subprocess.Popen[str]":
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    env = environment({"HOLDLOG_DB": str(db)})
    return subprocess.Popen([HOLDLOG, *words], env=env, text=True, cwd=db.parent, **streams)


def test_closed_pipe_ends_a_command_quietly(db):
    with holdlog.StateStore(db) as store:
        for number in range(300):
            store.set("n", f"{number}", "x" * 1_000, updated_by="ann")
    process = start(db, "log", "--json")
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(PATIENCE) in (0, 1, 128 + signal.SIGPIPE, -signal.SIGPIPE)
    assert process.stderr is not None
    assert process.stderr.read() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=rest)])
def test_interrupt_ends_a_command_that_waits_without_a_traceback(db, number):
    with holdlog.StateStore(db) as store:
        store.claim("custom://a", agent="ann")
        process = start(db, "claim", "custom://a", *BOB, "--wait-seconds", "45")
        until(lambda: store.status("custom://a").queue_length == 1)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode in (128 + number, -number)
        assert ("Traceback" in err, out, err.count("\n") <= 1) == (False, "", True)


@rest
def test_follow_prints_new_events_until_an_interrupt(db):
    with holdlog.StateStore(db) as store:
        process = start(db, "log", "--follow", "--json")
        assert process.stdout is not None
        until(lambda: store.set("n", "k", 1, updated_by="ann") and select([process.stdout], [], [], 0.1)[0])
        store.set("n", "k", 2, updated_by="ann")
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        assert (first["by"], second["position"]) == ("ann", first["position"] + 1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert ("Traceback" in err, process.returncode in (0, 130, -2)) == (False, True)


@rest
@pytest.mark.parametrize("words", ["list", "--help", "--version"])
def test_full_disk_behind_the_output_is_reported_in_one_line(db, words):
    holdlog.StateStore(db).close()
    with Path("/dev/full").open("w") as full:
        process = start(db, words, stdout=full)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (1, "holdlog: No space left on device\n")


@rest
def test_encoding_that_lacks_characters_fails_no_command(command):
    assert command("set", "n", "k", '"😀 é"', "--expected-version", "0", "--updated-by", "Ömer").code == 0
    for env in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        for words in (("get", "n", "k"), ("list", "n"), ("log",), ("history", "n", "k", "--json")):
            done = command(*words, env=env)
            assert (done.code, done.err) == (0, ""), (words, env)


@rest
def test_server_in_a_terminal_shows_store_and_next_commands(db):
    """Typed without a word, it does not hang silently."""
    control, terminal = os.openpty()
    process = start(db, "serve", stdin=terminal, stdout=terminal)
    os.close(terminal)
    assert process.stderr is not None
    text = process.stderr.readline()
    while text.count("holdlog ") < 4:
        line = process.stderr.readline()
        assert line, text
        text += line
    assert str(db) in text
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) in (0, 128 + signal.SIGINT)
    os.close(control)


# --- run


def test_run_holds_the_claim_while_the_command_runs_and_returns_its_code(command, db):
    inside = f"{shlex.quote(HOLDLOG)} status custom://m --json; exit 7"
    done = command("run", "--claim", "custom://m", "--agent", "ann", "--", "sh", "-c", inside)
    assert (done.code, done.json["held_by"], done.err) == (7, "ann", "")
    with holdlog.StateStore(db) as store:
        ended = store.status("custom://m")
        assert (ended.status, ended.previous_holder) == ("available", "ann")
        store.claim("custom://m", agent="ben")
        refused = command("run", "--claim", "custom://m", "--agent", "ann", "--", "touch", "ran")
    assert (refused.code, refused.out, refused.err.startswith("holdlog: ")) == (1, "", True)
    assert "held by ben" in refused.err


@rest
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--", "no-such-command"), 127),
        (("--", "/tmp"), 126),
        (("--claim", "src/*", "true"), 2),
        (("--lease", "0", "true"), 2),
    ],
)
def test_command_that_cannot_run_claims_nothing(command, words, code):
    done = command("run", "--claim", "custom://m", "--agent", "ann", *words)
    assert one_line(done, code=code), done
    assert command("status", "custom://m").out in ("available custom://m\n", "")


@rest
def test_run_that_waited_in_vain_advises_a_longer_wait(command):
    assert command("claim", "custom://a", *ANN).code == 0
    for words, advice in (((), "to queue, add --wait 600\n"), (("--wait", "0.1"), "to wait longer, raise --wait\n")):
        refused = command("run", "--claim", "custom://a", "--agent", "bob", *words, "--", "true")
        assert (refused.code, refused.err.endswith(f"; nothing was run; {advice}")) == (1, True), refused


@rest
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_is_passed_on_to_the_command_of_run(db, tmp_path, number):
    script = f"trap 'exit 5' TERM INT; echo ready > {tmp_path}/ready; while :; do sleep 0.05; done"
    process = start(
        db, "run", "--claim", "custom://m", "--agent", "ann", "--", "sh", "-c", script, start_new_session=True
    )
    until((tmp_path / "ready").exists)
    process.send_signal(number)
    assert process.wait(PATIENCE) == 5
    with holdlog.StateStore(db) as store:
        assert store.status("custom://m").status == "available"


@rest
def test_claim_lost_during_run_is_reported_and_fails_the_command(db, command, tmp_path):
    script = f"echo > {tmp_path}/ready; cat > {os.devnull}"
    process = start(
        db, "run", "--claim", "custom://m", "--agent", "ann", "--", "sh", "-c", script, stdin=subprocess.PIPE
    )
    until((tmp_path / "ready").exists)
    assert command("release", "custom://m", "--force", "--reason", "gone").code == 0
    assert process.stderr is not None
    assert "you lost custom://m" in process.stderr.readline()
    assert process.poll() is None
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 1


@rest
def test_runs_of_one_claim_never_overlap(db, tmp_path):
    log = tmp_path / "log"
    script = f"echo enter >> {log}; sleep 0.1; echo leave >> {log}"
    words = ("run", "--claim", "custom://m", "--wait-seconds", "45", "--", "sh", "-c", script)
    runs = [start(db, *words, "x", start_new_session=True) for _ in range(5)]
    assert [it.wait(PATIENCE) for it in runs] == [0] * 5
    assert log.read_text().split() == ["enter", "leave"] * 5


@rest
def test_demo_ends_well_and_leaves_nothing_behind(tmp_path):
    done = run("demo", cwd=tmp_path)
    assert (done.code, done.err, "\x1b" in done.out) == (0, "", False)
    assert ("conflict" in done.out, "holdlog init" in done.out) == (True, True)
    assert not [it for it in tmp_path.rglob("*") if it.suffix == ".db"]
