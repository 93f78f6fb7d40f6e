"""What all tests share: an environment of their own."""

import os
import signal

import pytest

from tests.support.servers import create_user

GIT = {
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "ann"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "ann@example.org"),
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}
"""Whoever runs the tests may have no identity, or sign commits and run hooks of their own."""


def pytest_configure(config: pytest.Config) -> None:
    """Also restores the handler of Ctrl-C, which a shell ignores for what it runs in the background."""
    os.environ.update(GIT)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        create_user()
