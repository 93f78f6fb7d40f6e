"""The store's file, as somebody with a database shell sees and changes it. Only here do doors know table names."""

import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.doors import old

_OF_01 = {"EVENTS": "stored_events", "POSITION": "rowid", "STREAM": "originator_id", "VERSION": "originator_version"}
_OF_02 = {"EVENTS": "events", "POSITION": "position", "STREAM": "stream", "VERSION": "version"}
NAMES = _OF_01 if old.OLD else _OF_02
DROP_FROM_VIEW = "DELETE FROM current WHERE " + ("key = 'a'" if old.OLD else "stream = 'record:n/a'")


def ask(db: Path, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement, in which the names of `NAMES` stand for those of the table of events; the rows it returns."""
    written = re.sub("|".join(NAMES), lambda name: NAMES[name[0]], statement)
    with closing(sqlite3.connect(db, isolation_level=None)) as connection:
        cursor = connection.execute(written)
        rows = cursor.fetchall()
    assert rows or cursor.rowcount != 0, "the statement hit nothing"
    return rows


def files_with(folder: Path, text: str) -> list[str]:
    """The files in a folder that contain a text. Another process reads them: closing a file of an open store here
    would drop the locks of this process on it."""
    done = subprocess.run(["grep", "-rlF", "--", text, folder], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done
    return done.stdout.splitlines()
