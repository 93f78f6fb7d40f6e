"""The store's file, as somebody with a database shell sees and changes it. Only here do doors know table names."""

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any


def ask(db: Path, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement; the rows it returns."""
    with closing(sqlite3.connect(db, isolation_level=None)) as connection:
        cursor = connection.execute(statement)
        rows = cursor.fetchall()
    assert rows or cursor.rowcount != 0, "the statement hit nothing"
    return rows


def files_with(folder: Path, text: str) -> list[str]:
    """The files in a folder that contain a text. Another process reads them: closing a file of an open store here
    would drop the locks of this process on it."""
    done = subprocess.run(["grep", "-rlF", "--", text, folder], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done
    return done.stdout.splitlines()
