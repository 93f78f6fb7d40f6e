"""The command line: which word is the command, what is printed, and with which exit code."""

import pytest

from holdlog.adapters.cli.main import parsed


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
def test_the_value_of_an_option_is_no_command(line: str, command: str) -> None:
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


@pytest.mark.parametrize("line", ["clams", "--db x.db clams", "clams --help"])
def test_a_command_that_does_not_exist_is_told_in_one_line(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(line.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err == "holdlog: there is no command 'clams' (see holdlog --help)\n"
