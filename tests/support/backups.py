"""A store with one key, which tests back up and restore."""

from pathlib import Path

from holdlog import StateStore


def write(path: Path, *values: int) -> None:
    with StateStore(path) as store:
        for value in values:
            store.set("n", "k", value, updated_by="ann")


def value(path: Path) -> object:
    with StateStore(path) as store:
        return store.get("n", "k").value
