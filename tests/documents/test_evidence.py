"""docs/evidence.md describes the files of a bundle, and its command of openssl verifies the signature."""

import ast
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import run_command
from tests.support.evidence import VERIFIER, events_of, files_of, story

PAGE = (Path(__file__).parents[2] / "docs" / "evidence.md").read_text()
DECISIONS = [
    (VERIFIER.parent / "decisions" / name).read_text()
    for name in ("0004-envelope-and-digest.md", "0030-log-format-2.md")
]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_page_describes_the_files_and_verifies_the_signature(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, bundle = tmp_path / "key.pem", tmp_path / "case.zip"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", tmp_path / "public.pem"], check=True)
    key.chmod(0o600)
    story(tmp_path / "state.db")
    words = ("--db", str(tmp_path / "state.db"), "-o", str(bundle), "--sign", str(key))
    assert run_command(capsys, "evidence", *words)[0] == 0
    files = files_of(bundle)
    table = PAGE.split("<!-- files -->")[1]
    assert set(re.findall(r"^\| `(\S+)`", table, re.MULTILINE)) == set(files)
    for name in ("checkpoint.body", "checkpoint.sig"):
        (tmp_path / name).write_bytes(files[name])
    (command,) = re.findall(r"<!-- openssl -->\n```console\n(.*)\n```", PAGE)
    done = subprocess.run(shlex.split(command), cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Verified Successfully" in done.stdout + done.stderr
    documented = {name for page in DECISIONS for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
                  for name in re.findall(r"`(\w+)`", row)}  # fmt: skip
    assert set(events_of(files)[0]) - {"position", "previous", "before"} == documented - {"rowid"}


def test_verifier_is_one_page_of_python_39_with_the_standard_library_only() -> None:
    text = VERIFIER.read_text()
    assert ast.parse(text, feature_version=(3, 9)).body
    imports = set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE))
    assert imports < sys.stdlib_module_names
    assert len([line for line in text.splitlines() if line.strip()]) <= 160
