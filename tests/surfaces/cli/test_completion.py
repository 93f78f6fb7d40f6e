"""`holdlog completion`: real bash completes commands, actions, options and choices with the printed script."""

import shutil
import subprocess
from pathlib import Path

import pytest

from holdlog.adapters.cli.main import build_parser, main

BASH = """
source "$1"; shift
function=$(complete -p holdlog | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
"$function" holdlog "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "holdlog"
    with pytest.MonkeyPatch.context() as patch, path.open("w") as file:
        patch.setattr("sys.stdout", file)
        assert main(["completion", "bash"]) == 0
    return path


def completed(script: Path, *words: str) -> list[str]:
    bash = shutil.which("bash")
    assert bash is not None
    command = [bash, "--norc", "-c", BASH, "bash", str(script), "holdlog", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("rep",), ["replay"]),
        (("--db", "state.db", "repl"), ["replay"]),
        (("replay", "--sta"), ["--state"]),
        (("replay", "--from", "3", "--s"), ["--speed", "--state"]),
        (("thread", "re"), ["read"]),
        (("serve", "--transport", "h"), ["http"]),
        (("completion", "f"), ["fish"]),
    ],
)
def test_bash_completes_commands_options_and_choices(script: Path, words: tuple[str, ...], expected: list[str]) -> None:
    assert completed(script, *words) == expected


def test_bash_completes_every_command(script: Path) -> None:
    _, commands = build_parser()
    assert set(completed(script, "")) == commands


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_other_shells_describe_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "show what happened from one moment to another, and the resulting state" in script
    assert "speed" in script
    assert "holdlog" in script.splitlines()[0 if shell == "zsh" else 2]


@pytest.mark.parametrize("words", [["completion"], ["completion", "tcsh"]])
def test_completion_of_another_shell_is_refused_in_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "SHELL" in err


def test_completion_prints_nothing_of_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDLOG_DB", "postgresql://ann:s3cret@db.example/team")
    assert main(["completion", "zsh"]) == 0
    assert "s3cret" not in capsys.readouterr().out
