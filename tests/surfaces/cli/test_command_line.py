"""The command line: which word is the command, what is printed, and with which exit code."""

import argparse
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.cli.main import build_parser, main, parsed
from holdlog.adapters.cli.parsers import did_you_mean
from holdlog.adapters.cli.serve import ServeOptions
from holdlog.adapters.cli.settings import WorkspaceOptions, read_options
from holdlog.adapters.cli.texts import printable
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.mcp.groups import ALIASES, GROUPS
from tests.support.wire import Wire

CALLS = ("get", "set", "delete", "list", "history", "watch", "claims", "agents", "claim", "release", "status", "wait")


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Terminal:
    """Runs commands on one store, which does not exist at first."""

    def __init__(self, db: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.db = db
        self._capsys = capsys

    def __call__(self, *words: str) -> Ran:
        try:
            code = main([*words, "--db", str(self.db)])
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Ran(code, *self._capsys.readouterr())


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name in ("HOLDLOG_DB", "HOLDLOG_AGENT", "HOLDLOG_TOOL_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    return Terminal(tmp_path / "state.db", capsys)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("", "serve"),
        ("--tools claims", "serve"),
        ("--tools=claims", "serve"),
        ("--db x.db --tools claims", "serve"),
        ("--max-wait 5 --tools claims", "serve"),
        ("--tool-prefix wait", "serve"),
        ("--db get", "serve"),
        ("serve --tools claims", "serve"),
        ("--db x.db claims", "claims"),
        ("--db=x.db claims", "claims"),
        ("claims --db x.db", "claims"),
        ("--db claims get n k", "get"),
    ],
)
def test_value_of_an_option_is_not_taken_for_a_command(line: str, command: str) -> None:
    options = parsed(line.split())
    assert options.command == command
    assert "--db x.db" not in line or options.db == "x.db"
    assert "claims" not in line or command != "serve" or options.tools == "claims"


@pytest.mark.parametrize("line", ["-h", "--help", "--version", "serve -h", "claims --help"])
def test_help_and_version_are_shown(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(line.split())
    assert ended.value.code == 0
    assert "holdlog" in capsys.readouterr().out


def test_the_help_of_serve_names_every_group(run: Terminal) -> None:
    shown = run("serve", "--help").out
    assert all(group in shown for group in (*GROUPS, *ALIASES))


def test_author_of_a_value_given_as_agent_leads_to_the_option_by(run: Terminal) -> None:
    refused = run("set", "n", "k", "1", "--version", "0", "--agent", "ann")
    told = "holdlog set: unknown argument --agent ann; did you mean --by? (see holdlog set --help)\n"
    assert (refused.code, refused.err) == (2, told)


def test_word_help_prints_the_help(run: Terminal) -> None:
    assert run("help") == run("--help")


@pytest.mark.parametrize(("word", "guess"), [("--verson", "--version"), ("--hlep", "--help")])
def test_misspelt_option_without_a_command_is_refused_with_a_suggestion(word: str, guess: str, run: Terminal) -> None:
    told = f"holdlog: unknown argument {word}; did you mean {guess}? (see holdlog --help)\n"
    assert run(word) == (2, "", told)


def test_no_option_of_serve_is_taken_for_a_misspelt_one() -> None:
    options = [name for action in ALL["holdlog serve"]._actions for name in action.option_strings]
    wrong = [it for it in options if it != "--help" and did_you_mean(it, ("--help", "--version"))]
    assert (len(options) > 10, wrong) == (True, [])


def test_error_names_options_of_the_command_line(run: Terminal) -> None:
    told = "holdlog: --moved-to: is required with --outcome moved; pass the new path\n"
    assert run("release", "custom://a", "--agent", "ann", "--outcome", "moved") == (2, "", told)
    refused = run("release", "--also", "custom://a", "--agent", "ann")
    assert (refused.code, refused.err) == (
        2,
        "holdlog: --also: requires RESOURCE; pass the first name as RESOURCE\n",
    )


@pytest.mark.parametrize("line", ["clams", "--db x.db clams", "clams --help"])
def test_unknown_command_is_refused_in_one_line_with_a_suggestion(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(line.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err == "holdlog: unknown command 'clams'; did you mean claims? (see holdlog --help)\n"


@pytest.mark.parametrize(
    ("line", "command", "guess"),
    [
        ("log --follwo", "log", "--follow"),
        ("serve --transprot=http", "serve", "--transport"),
        ("--transprot http", "serve", "--transport"),
        ("token list -x", "token list", None),
        ("claim x --by ann", "claim", "--agent"),
        ("claim x --outcome", "claim", None),
        ("log --foll", "log", "--follow"),  # an abbreviation of today could be another option tomorrow
    ],
)
def test_unknown_option_is_refused_by_its_command_with_a_suggestion(
    line: str, command: str, guess: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(line.split())
    assert ended.value.code == 2
    unknown = line[line.index(" -") + 1 :] if line[0] != "-" else line
    suggestion = f"; did you mean {guess}?" if guess else ""
    told = f"holdlog {command}: unknown argument {unknown}{suggestion} (see holdlog {command} --help)\n"
    assert capsys.readouterr().err == told


def test_control_characters_of_an_unknown_argument_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parsed(["claims", "--jsn\x1b[2J", "\x1b]0;x\x07", "\u202e\n"])
    error = capsys.readouterr().err
    assert error.startswith(r"holdlog claims: unknown argument --jsn\u001b[2J \u001b]0;x\u0007 \u202e\u000a")
    assert error.removesuffix("\n").isprintable()


@pytest.mark.parametrize(
    ("line", "wrong", "guess"),
    [
        ("thread lsit", "argument ACTION: 'lsit' is not one of list, read, data, history", "list"),
        ("token creat", "argument ACTION: 'creat' is not one of create, list, revoke, rotate", "create"),
        ("claim x --mode share", "argument --mode: 'share' is not one of exclusive, shared", "shared"),
        ("serve --tools claims,stat", "--tools: 'stat' is not one of claims, state, power,", "state"),
        ("log --kinds claims,clams", "--kinds: 'claims' is not one of record, claim, thread, agent, token", "claim"),
        ("log --kinds ValueWriten", "--kinds: 'ValueWriten' is not one of", "ValueWritten"),
    ],
)
def test_unknown_word_is_refused_in_one_line_with_a_suggestion(
    line: str, wrong: str, guess: str, run: Terminal
) -> None:
    assert run("claim", "x", "--agent", "ann").code == 0
    refused = run(*line.split())
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert wrong in refused.err
    assert f"; did you mean {guess}?" in refused.err


def test_word_unlike_all_known_ones_gets_no_suggestion(run: Terminal) -> None:
    refused = run("serve", "--tools", "xyz")
    assert (refused.code, "did you mean" in refused.err) == (2, False)


def test_option_before_its_command_is_refused_with_the_right_order(run: Terminal) -> None:
    for line in ("--lease-seconds 100 claim x", "--db x.db --lease-seconds=100 claim x", "--agent ann claims"):
        refused = run(*line.split())
        assert (refused.code, "only --db may come before a command" in refused.err) == (2, True), line


@pytest.mark.parametrize(
    ("variable", "given"),
    [
        ("LEASE_SECONDS", "foo"),
        ("LEASE_SECONDS", "0"),
        ("GRACE_SECONDS", "foo"),
        ("IDLE_LIMIT", "nan"),
        ("MAX_CLAIMS", "1.5"),
        ("MAX_WAIT", "-1"),
        ("MAX_VALUE_BYTES", "1k"),
        ("LOG_LEVEL", "loud"),
    ],
)
def test_bad_setting_is_reported_with_its_rule_and_variable(
    variable: str, given: str, run: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = "--" + variable.lower().replace("_", "-")
    refused = run("serve", option, given)
    assert (refused.code, refused.out) == (2, "")
    assert re.fullmatch(rf"holdlog serve: argument {option}: must be [^_]*\n", refused.err)
    monkeypatch.setenv(f"HOLDLOG_{variable}", given)
    refused = run("serve")
    assert re.fullmatch(rf"holdlog serve: argument {option}: must be .* \(in HOLDLOG_{variable}\) .*\n", refused.err)


@pytest.mark.parametrize("variable", ["TRANSPORT", "CLAIMS_ACROSS_WORKTREES", "NATS_MAX_BYTES"])
def test_unknown_word_in_a_variable_is_refused_with_its_name(
    variable: str, run: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"HOLDLOG_{variable}", "htp")
    refused = run("serve")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert f"(in HOLDLOG_{variable})" in refused.err


def test_empty_variable_is_no_value_but_for_the_tool_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOOLS", "TOOL_PREFIX", "MAX_CLAIMS", "WORKSPACE"):
        monkeypatch.setenv(f"HOLDLOG_{name}", "")
    options = parsed([])
    assert read_options(ServeOptions, options) == ServeOptions(tool_prefix="")
    assert read_options(Settings, options) == Settings()
    assert read_options(WorkspaceOptions, options) == WorkspaceOptions()


def test_flag_wins_over_its_variable_and_adds_to_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDLOG_MAX_CLAIMS", "7")
    monkeypatch.setenv("HOLDLOG_ALLOWED_HOST", "a.example, b.example")
    assert read_options(Settings, parsed([])).max_claims == 7
    options = parsed(["--max-claims", "8", "--allowed-host", "c.example"])
    assert read_options(Settings, options).max_claims == 8
    assert read_options(HttpOptions, options).allowed_hosts == ("a.example", "b.example", "c.example")


@pytest.mark.check
@pytest.mark.parametrize("words", ["list", "claims", "--help", "--version"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
def test_full_disk_behind_the_output_is_reported_in_one_line(words: str, run: Terminal) -> None:
    assert run("set", "n", "k", "1", "--version", "0").code == 0
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "holdlog", words],
            env=os.environ | {"HOLDLOG_DB": str(run.db)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "holdlog: No space left on device\n")


HOSTILE = "a\x1b[2J\x7f\x9b31m\u202egnp\u2066\U000e0041b"
HARMLESS = r"a\u001b[2J\u007f\u009b31m\u202egnp\u2066\udb40\udc41b"


def test_command_line_prints_no_terminal_control_characters(run: Terminal) -> None:
    value = json.dumps({"text": HOSTILE, "lines": "a\nb"})
    assert run("set", "n", "k", value, "--version", "0", "--by", "ann", "--reason", "one").code == 0
    for words in (("get", "n", "k"), ("list", "n"), ("history", "n", "k"), ("set", "n", "k", "1", "--version", "0")):
        for form in ((), ("--json",)):
            shown = run(*words, *form)
            assert all(line.isprintable() for line in (shown.out + shown.err).split("\n")), words
            assert "2J" in shown.out + shown.err
    assert json.loads(run("get", "n", "k", "--json").out)["value"] == json.loads(value)
    assert json.loads(run("get", "n", "k").out) == json.loads(value)
    assert printable(HOSTILE) == HARMLESS


def test_json_output_is_the_answer_an_agent_gets(run: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("claim", "a.py", "--agent", "ann").code == 0
    assert "holdlog_wait" in json.loads(run("claim", "a.py", "--agent", "bob", "--json").out)["hint"]
    assert "holdlog claim again with --wait 30" in run("claim", "a.py", "--agent", "bob").err
    monkeypatch.setenv("HOLDLOG_TOOL_PREFIX", "x_")
    assert "x_wait" in json.loads(run("claim", "a.py", "--agent", "bob", "--json").out)["hint"]


@pytest.mark.parametrize(
    "command", ["claims", "agents", "list", "log", "doctor", "status", "thread list", "token list"]
)
def test_new_repository_gets_the_next_step_and_exit_code_0(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDLOG_DB", raising=False)
    assert main(command.split()) == 0
    assert "the first claim or set creates it, for example: holdlog claim" in "".join(capsys.readouterr())
    assert main([*command.split(), "--json"]) == 0
    listed = capsys.readouterr().out
    assert command == "log" or json.loads(listed)
    assert not list(tmp_path.rglob("state.db"))


@pytest.mark.parametrize(
    "line", ["get n k", "list", "list n", "history n k", "claims", "status", "status a.py", "thread list"]
)
def test_read_commands_do_not_create_a_store(line: str, run: Terminal) -> None:
    told = (
        f"holdlog: there is no store at {run.db} yet; the first claim or set creates it,"
        " for example: holdlog claim README.md (use --db for another store)\n"
    )
    assert run(*line.split()) == (1, "", told)
    assert not run.db.parent.joinpath("state.db").exists()


@pytest.mark.parametrize("line", ["get n k", "list", "history n k", "claims", "agents", "status a.py"])
def test_read_commands_do_not_create_a_store_in_a_database(
    line: str, postgres: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert main([*line.split(), "--db", postgres]) == 1
        assert "there is no store at" in capsys.readouterr().err


def test_empty_list_names_its_store_and_the_next_step(run: Terminal) -> None:
    assert run("claim", "a.py", "--agent", "ann").code == run("release", "a.py", "--agent", "ann").code == 0
    nothing = f"nothing is claimed in the store {run.db}; to claim a file: holdlog claim README.md\n"
    assert run("claims") == run("status") == (0, nothing, "")
    nobody = f"no agent holds or waits for anything in the store {run.db}; to claim a file: holdlog claim README.md\n"
    assert run("agents", "--agent", "ann") == (0, nobody, "")
    no_values = f"no values in the store {run.db}; to write one: holdlog set NAMESPACE KEY VALUE --version 0\n"
    assert run("list") == (0, no_values, "")
    in_namespace = f"no values in namespace n of the store {run.db}; to see all namespaces: holdlog list\n"
    assert run("list", "n") == (0, in_namespace, "")
    assert run("history", "n", "k").out.startswith(f"no versions of this key in the store {run.db}; ")


def test_answer_of_a_command_is_a_sentence_that_begins_with_its_status(
    run: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # in no worktree of ours, where paths would have the prefix of that
    ann = ("--agent", "ann", "--session", "s1")
    assert run("claim", "a.py", *ann).out == "claimed a.py (version 1)\n"
    again = run("claim", "a.py", *ann).out.splitlines()[0]
    assert_like(again, r"already_claimed: you hold a.py since TIME \(version 1\)")
    assert_like(run("claim", "a.py", "--agent", "bob").err, r"busy: a.py is held by ann since TIME \(\d+ s\)")
    assert_like(run("status", "a.py").out, r"claimed: a.py is held by ann since TIME \(\d+ s\)")
    assert_like(run("release", "a.py", "--agent", "bob").err, "not_holder: a.py is held by ann")
    assert run("release", "a.py", *ann).out == "released a.py (version 2)\n"
    assert run("release", "a.py", "--agent", "ann").out == "already_free a.py\n"
    assert_like(run("status", "a.py").out, r"available: a.py \(released by ann at \S+ TIME\)")
    assert run("status", "b.py").out == "available b.py\n"
    assert_like(run("release", "b.py", "--agent", "ann").err, "not_found: b.py was never claimed")
    assert_like(run("get", "n", "k").err, "not_found: n/k has no value")
    assert run("set", "n", "k", "1", "--version", "0", "--by", "ann").out == "version 1\n"
    assert_like(run("set", "n", "k", "2", "--version", "0").err, "conflict: n/k is at version 1 by ann, not 0: 1")
    assert_like(run("history", "n", "k").out, r"v1  write  ann  \d{4}-\d\d-\d\d TIME  1")
    assert run("delete", "n", "k", "--version", "1", "--by", "ann").code == 0
    assert_like(run("get", "n", "k").err, r"not_found: n/k was deleted by ann at \S+ TIME \(version 2\)")


def test_refusal_ends_with_the_command_to_run_next(run: Terminal) -> None:
    assert run("set", "n", "k", "1", "--version", "0").code == 0
    assert run("claim", "custom://a", "--agent", "ann").code == 0
    refusals = {
        "set n k 2 --version 0": "Merge your change into this value, then: holdlog set n k VALUE --version 1",
        "delete n k --version 9": "To delete this value: holdlog delete n k --version 1",
        "set n other 2 --version 4": "To create it: holdlog set n other VALUE --version 0",
        "get n other": "To see which keys have a value: holdlog list n",
        "watch n k --since 1 --timeout 0": "To wait again: holdlog watch n k --since 1",
        "wait custom://a --timeout 0": "To wait again: holdlog wait custom://a; to queue for it: holdlog claim custom://a"
        " --wait 30",
        "release custom://b --agent ann": "To see what is claimed: holdlog claims",
    }
    for line, advice in refusals.items():
        refused = run(*line.split())
        assert (refused.code, refused.out, refused.err.splitlines()[1:]) == (1, "", [advice])


def assert_like(shown: str, first_line: str) -> None:
    assert re.fullmatch(first_line.replace("TIME", r"\d\d:\d\d:\d\d\.\d{3} UTC"), shown.splitlines()[0]), shown


@pytest.mark.parametrize("value", ["{'bad'", "{bad}", "[1, 2", '"open', "[" * 100_000])
def test_a_value_that_looks_like_json_must_be_json(value: str, run: Terminal) -> None:
    told = "VALUE: starts like JSON but is not valid JSON; to store it as text, make it a JSON string"
    refused = run("set", "n", "k", value, "--version", "0")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert told in refused.err
    assert not run.db.exists()


@pytest.mark.parametrize("command", CALLS)
def test_help_of_a_command_shows_an_example_it_accepts(command: str, run: Terminal) -> None:
    shown = run(command, "--help").out
    example = re.findall(r"^examples?:\n  holdlog (.+)$", shown, re.MULTILINE)[0]
    assert parsed(shlex.split(example)).command == command
    for option in {"--limit", "--timeout", "--agent"}.intersection(shown.split()):
        assert re.search(rf"{option} \w+\s[^(]*\(default: ", shown)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of all commands, and of their actions."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield each
                yield from parsers(each)


ALL = {parser.prog: parser for parser in parsers(build_parser()[0])}


@pytest.mark.parametrize("name", ALL)
def test_help_of_each_command_has_a_sentence_and_an_example(name: str) -> None:
    parser = ALL[name]
    assert parser.description is not None
    assert re.match(r"[A-Z][^.]+\.", parser.description), parser.description
    examples = re.findall(r"^  (holdlog .+?)(?: {3,}.*)?$", parser.epilog or "", re.MULTILINE)
    assert any(example.startswith(name.replace("MOMENT", "14:03")) for example in examples)
    for example in examples:
        assert parsed(shlex.split(example)[1:]).command


@pytest.mark.parametrize("name", ALL)
def test_help_of_each_option_names_its_default(name: str) -> None:
    options = [action for action in ALL[name]._actions if action.option_strings and not action.required]
    assert options
    for option in options:
        text = option.help or ""
        assert text, option.option_strings
        if not _NEEDS_NO_DEFAULT.intersection(option.option_strings):
            assert "(default: " in text, (option.option_strings, text)


_NEEDS_NO_DEFAULT = {
    *("--help", "--version", "--force", "--shared", "--receipt", "--reason", "--moved-to", "--prefix", "--request-id"),
    *("--increment", "--append", "--merge", "--patch", "--unique"),
}
"""What they do without a value is clear, or the command refuses to run without it."""


def test_help_lists_every_command_once_in_a_group(run: Terminal) -> None:
    parser, commands = build_parser()
    listed = run("--help").out.partition("\noptions:")[0]
    assert sorted(re.findall(r"^  ([a-z]+) {2,}\S", listed, re.MULTILINE)) == sorted(
        commands - {"collisions"}
    )  # an alias
    titles = re.findall(r"^([a-z ]+):$", listed, re.MULTILINE)
    assert titles == [
        "begin here",
        "work with claims",
        "work with values",
        "work with threads",
        "see and undo changes",
        "audit and administration",
        "servers and stores",
    ]
    assert parser.usage == "holdlog [--db PATH|URL] COMMAND …"


@pytest.mark.parametrize("command", ["", "serve", "copy", "relay", "subscribe", "up"])
def test_command_examples_are_accepted_and_survive_a_shell(command: str, run: Terminal) -> None:
    examples = re.findall(r"^  holdlog(?: (\S.*?))?(?: {3,}.*)?$", run(*command.split(), "--help").out, re.MULTILINE)
    assert examples
    for example in examples:
        assert parsed(shlex.split(example)).command.startswith(command)
        assert not set(re.sub(r"'[^']*'", "", example)) & set("?*>&")  # of which zsh would make something else


def test_help_has_an_example_with_a_database_and_one_of_each_kind(run: Terminal) -> None:
    shown = run("--help").out.partition("examples:")[2]
    for words in ("--db 'postgresql://", "holdlog up ", "holdlog copy ", "holdlog subscribe "):
        assert words in shown


def test_up_command_accepts_no_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--db", "x.db", "up"]) == 2
    assert (
        capsys.readouterr().err
        == "holdlog: up: --db does not apply, because up starts a new database; use --data to keep it\n"
    )


@pytest.mark.check
@pytest.mark.parametrize(("level", "told"), [("warning", False), ("info", True)])
def test_bad_arguments_of_an_agent_are_logged_on_request(level: str, told: bool, tmp_path: Path) -> None:
    wire = Wire("-m", "holdlog", "--db", tmp_path / "state.db", "--log-level", level)
    answer = wire.open().ask("tools/call", {"name": "holdlog_claim", "arguments": {"agent": 7}}, "bad")
    assert answer["result"]["isError"]
    assert wire.process.stdin is not None
    wire.process.stdin.close()
    errors = b"".join(iter(lambda: wire.line("stderr"), b"")).decode()
    assert ("Invalid arguments for tool" in errors) == told
    assert wire.process.wait(20) == 0


def test_time_to_live_is_printed_for_people_and_not_for_programs(run: Terminal) -> None:
    assert run("set", "n", "k", "7", "--version", "0", "--ttl", "3600").code == 0
    assert run("get", "n", "k") == (0, "7\n", "")
    assert json.loads(run("get", "n", "k", "--json").out)["expires_in_seconds"] > 3000
    said = in_a_terminal("get", "n", "k", "--db", str(run.db))
    assert re.fullmatch(r"7\r\nexpires in \d+ min \d+ s at [-\d]+ [:.\d]+ UTC\r\n", said)
    assert run("set", "n", "k", "7", "--version", "1").code == 0
    assert in_a_terminal("get", "n", "k", "--db", str(run.db)) == "7\r\n"


def test_expired_value_is_not_reported_as_deleted(run: Terminal) -> None:
    run("set", "n", "k", "7", "--version", "0", "--ttl", "0.000001")
    assert re.match(r"not_found: n/k expired at [-\d]+ [:.\d]+ UTC \(version 2\)\n", run("get", "n", "k").err)
    assert re.match(r"deleted: n/k expired at ", run("watch", "n", "k", "--since", "1").out)
    run("set", "n", "k", "8", "--version", "0")
    _, ended, _ = run("history", "n", "k").out.splitlines()
    assert re.match(r"v2 +expire ", ended)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9"])
def test_time_to_live_out_of_range_is_a_bad_argument(seconds: str, run: Terminal) -> None:
    code, out, err = run("set", "n", "k", "7", "--version", "0", f"--ttl={seconds}")
    assert (code, out) == (2, "")
    assert err.startswith("holdlog: --ttl: must be")


def in_a_terminal(*words: str) -> str:
    """What a person sees of a command that has a terminal for its output."""
    master, slave = pty.openpty()
    done = subprocess.run([sys.executable, "-m", "holdlog", *words], stdout=slave, stderr=slave, timeout=60, check=True)
    assert done.returncode == 0
    os.close(slave)
    said = os.read(master, 65_536).decode()
    os.close(master)
    return said
