"""The story of docs/time.md runs as written, and prints what the page shows."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "time.md").read_text()
BLOCKS = re.findall(r"<!-- story -->\n```console\n(.*?)```\n((?:\n```text\n.*?```\n)*)", PAGE, re.DOTALL)


def run(command: str, folder: Path) -> str:
    words = shlex.split(command)
    assert words[0] == "holdlog"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDLOG")}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=environment | {"HOLDLOG_DB": "story.db"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def pattern(shown: str) -> str:
    """Matches the text; … matches anything within a line."""
    return ".*".join(re.escape(part) for part in shown.split("…"))


@pytest.mark.check
def test_story_of_the_page_prints_what_the_page_shows(tmp_path: Path) -> None:
    assert len(BLOCKS) == 5
    for commands, shown in BLOCKS:
        lines = [line for line in commands.splitlines() if not line.startswith("export")]
        printed = [run(line, tmp_path) for line in lines]
        expected = re.findall(r"```text\n(.*?)```", shown, re.DOTALL)
        for text, output in zip(reversed(expected), reversed(printed), strict=False):
            assert re.fullmatch(pattern(text), output), output
    assert run("holdlog get campaign budget --json", tmp_path).count("10000") == 1
