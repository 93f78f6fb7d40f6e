"""Whether a call that changes nothing needs nothing: one look at the file, without all that a transaction loads. Most
calls of agents are such ones."""

import os
import re
import sqlite3
import time
from typing import Final

from holdlog.adapters.hooks.calls import HookCall

_READER: Final = r"[ \t]*(?:cat|cd|echo|grep|head|ls|pwd|rg|stat|tail|wc|which)(?:[ \t]+[\w./~=@%+:,*?-]+)*[ \t]*"
_READING: Final = rf"{_READER}(?:(?:&&|\|\|?|;){_READER})*"
"""Shell commands that are frequent and change nothing."""
_QUIET: Final = """SELECT NOT EXISTS (SELECT 1 FROM holders WHERE session = :session
    AND (lost IS NOT NULL OR seen_at < :now - lease / CASE handles WHEN '' THEN 8 ELSE 40 END))
    AND NOT EXISTS (SELECT 1 FROM claims WHERE is_ticket = 1)
    AND NOT EXISTS (SELECT 1 FROM files WHERE session = :session AND agent >= 'news ' AND agent < 'news!')
    AND EXISTS (SELECT 1 FROM conversations
    WHERE session = :session AND agent = :agent AND seen_at > :now - 225000000)"""
"""No holder of the conversation has lost something or was last heard an eighth of its life ago, nobody waits, no
command of others did something to its files (hooks/commands.py), and the agent is known."""


def needs_nothing(call: HookCall, store: str) -> bool:
    """Whether a plain shell command changes no file, the agent holds nothing whose life the call must prolong, and
    there is nothing to tell."""
    if call.event not in ("pre-edit", "post-edit") or "holdlog" in call.command or not os.path.isfile(store):
        return False
    if not re.fullmatch(_READING, call.command):
        return False
    path = store.replace("%", "%25").replace("?", "%3F").replace("#", "%23")
    mode = "ro" if os.path.exists(f"{store}-wal") else "ro&immutable=1"  # without a log, the file is complete
    facts = {"session": call.session, "agent": call.agent, "now": time.monotonic_ns() // 1000}
    try:
        connection = sqlite3.connect(f"file:{path}?mode={mode}", uri=True, timeout=0.1)
        try:
            return bool(connection.execute(_QUIET, facts).fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error:  # the whole way says what is wrong
        return False
