"""What docs/kv.md tells curl to send is what it gets."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.http import serving

DOCUMENT = (Path(__file__).parents[2] / "docs" / "kv.md").read_text()
ADDRESS = "http://127.0.0.1:8420"
END = "--- end of an answer ---"


def told() -> list[tuple[str, list[str]]]:
    """Each command with the lines that follow it."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"<!-- run -->\n```console\n(.*?)```", DOCUMENT, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            else:
                found[-1][1].append(line)
    return found


@pytest.mark.check
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_commands_of_the_document_get_the_documented_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # in no worktree of ours, where paths would have the prefix of that
    commands = told()
    assert len(commands) == 16
    with serving(tmp_path, "--open-tokens") as url:
        lines = [f"{command.replace(ADDRESS, url)}; printf '\\n{END}\\n'" for command, _ in commands]
        done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    answers = done.stdout.split(f"{END}\n")
    assert len(answers) == len(commands) + 1
    for (command, shown), answer in zip(commands, answers, strict=False):
        pattern = ".*".join(map(re.escape, "\n".join(shown).split("…")))
        assert re.fullmatch(pattern, answer.strip()), (command, answer)
