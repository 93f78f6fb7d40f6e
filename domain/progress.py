"""How long work reports how far it is."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called repeatedly with how much is done, and how much there is to do."""


def ignore_progress(done: int, total: int) -> None:
    """The `Progress` of work that nobody watches."""
