"""Opts a project in: hooks do nothing where there is no store."""

from pathlib import Path

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.operating_system.location import OUR_FOLDER, find_store, is_there, prepare_folder, state_location


def prepare_store(root: Path) -> None:
    """Create the store of a project if it is missing. Raises StoreError and LocationError."""
    store = find_store(None, {}, root)
    if store.parent == state_location({}):  # neither a git repository nor a folder of ours
        (root / OUR_FOLDER).mkdir(0o700, exist_ok=True)
        store = find_store(None, {}, root)
    if not is_there(store):
        open_holdlog(store, what="holdlog init", report=lambda line: None).close()


def folder_of_copies(root: Path) -> Path:
    """The folder next to the store for copies of files that init changes. Raises LocationError."""
    store = find_store(None, {}, root)
    return store.with_name(f"{store.name}.replaced")


def prepare_copies(root: Path) -> Path:
    """The folder of the copies. Creates the folder of the store, in which it is. Raises LocationError."""
    prepare_folder(find_store(None, {}, root))
    return folder_of_copies(root)
