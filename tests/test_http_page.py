"""What docs/http.md shows is what happens."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.programs import HOLDLOG, HttpServer, environment
from tests.support.waiting import PATIENCE

PAGE = Path(__file__).parents[1] / "docs/http.md"
BLOCK = re.compile(r"^```(sh|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ADDRESS = "http://127.0.0.1:8420"
SERVE = "holdlog serve --transport http --db team.db"


@pytest.mark.rest
def test_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    """A block `sh` starts the server, in `console` a line with $ is a command and … stands for any text."""
    server, checked = None, 0
    env = environment()
    env["PATH"] = f"{Path(HOLDLOG).parent}:{env['PATH']}"
    try:
        for kind, text in BLOCK.findall(PAGE.read_text()):
            if kind == "sh" and text.startswith(SERVE):
                if server is not None:
                    server.close()
                server = HttpServer(tmp_path / "team.db", "--tools", "claims,state", cwd=tmp_path)
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:] if kind == "console" else ():
                command, _, shown = part.partition("\n")
                assert server is not None
                done = subprocess.run(
                    ["bash", "-c", command.replace(ADDRESS, server.url)],
                    cwd=tmp_path,
                    env=env,
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                    check=False,
                )
                pattern = re.escape(shown.rstrip("\n")).replace("…", ".*?")
                assert re.fullmatch(pattern, done.stdout.rstrip("\n"), re.DOTALL), (command, done)
                checked += 1
    finally:
        if server is not None:
            server.close()
    assert checked > 20
