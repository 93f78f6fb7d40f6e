"""Whether a shell command uses holdlog for what only a person may do, or under the name of another agent: as far as its
words show. Scripts and variables of the agent's environment are not read, so a host's permissions must do the rest."""

from collections.abc import Sequence
from typing import Final

from holdlog.adapters.hooks.describe import shorten
from holdlog.adapters.hooks.words import read_options
from holdlog.domain.names import is_of_agent

_CALLERS: Final = ("--agent", "--by", "--updated-by", "--deleted-by")
_VERBS: Final = ("claim", "release", "commit", "run", "set", "update", "delete", "clear", "transact", "thread")
"""Commands that act as an agent; others select by its name."""


def judge_own(commands: Sequence[tuple[str | None, ...]], name: str) -> str | None:
    """Why commands of the agent `name`, as of Targets, are denied."""
    for agent, *words in commands:
        options, operands = read_options(words, f"--db {' '.join(_CALLERS)}")
        verb = operands[0] if operands else None
        if verb == "init" and "--undo" in options:
            return "holdlog: only a person removes the guard. Ask your user to run this command."
        if verb == "release" and "--force" in options:
            remedy = "release your own without --force, or ask your user to run this command"
            return f"holdlog: only a person ends the claim of another: {remedy}."
        named = [agent, *(options.get(option) for option in _CALLERS)] if verb in _VERBS else []
        for other in filter(None, named):
            if not (is_of_agent(name, other) or is_of_agent(other, name)):
                return f"holdlog: your name is {shorten(name)}, not {shorten(other)}: call holdlog without a name."
    return None
