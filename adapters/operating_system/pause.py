"""A session whose turn has ended: its server does not renew its claims until the next hook or call of the session.

Standard library only and quick to import: the hook's fast path uses it.
"""

from pathlib import Path


def hooks_folder(store: Path) -> Path:
    """The folder of the hooks' files next to the store file."""
    return store.with_name(f"{store.name}.hooks")


def pause_file(store: Path, session: str) -> Path:
    """Exists while the turn of the session has ended."""
    return hooks_folder(store) / f"{session}.paused"


def is_paused(store: Path, session: str) -> bool:
    """Whether hooks reported that the session's turn has ended."""
    return pause_file(store, session).exists()


def resume(store: Path, session: str) -> bool:
    """Let the session's server renew its claims again. Returns whether it was paused."""
    try:
        pause_file(store, session).unlink()
    except OSError:
        return False
    return True
