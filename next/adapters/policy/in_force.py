"""The `holdlog.toml` that is in force in a worktree: that of its commit HEAD, so that an edit relaxes nothing before a
person has committed it; without git, the file."""

import os
import subprocess
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from holdlog.adapters.operating_system.repositories import Worktree, read_pointer, read_worktree

GIT_SECONDS: Final = 1.5
"""Hooks end after 4 s at the latest."""
MAX_EXAMINED: Final = 10_000
"""Files and folders below a folder."""
EXAMINE_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 30.0
"""After git could not be asked."""
FILE: Final = "holdlog.toml"
MAX_BYTES: Final = 256 * 1024
_MODES: Final = ("block", "warn", "human")
