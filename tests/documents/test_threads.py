"""What docs/threads.md prints is what happens."""

import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = (Path(__file__).parents[2] / "docs/threads.md").read_text()


def test_threads_document_python_runs_and_prints_what_its_comments_state(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        told = re.findall(r"print\(.*\)  # (.*)$", block, re.MULTILINE)
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stderr == ""
        assert done.stdout.splitlines() == told
