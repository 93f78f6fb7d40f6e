"""Says once per session, and for each reason, that a call is not guarded because it cannot be read.

Standard library only and quick to import: the hook's fast path uses it.
"""

from contextlib import suppress
from typing import Any, Final

from holdlog.adapters.hooks.calls import HookCall, warning
from holdlog.adapters.hooks.notes import HookFiles
from holdlog.adapters.hooks.repositories import merge
from holdlog.adapters.hooks.session import list_name

MAX_PROBLEMS: Final = 20
"""Reasons that are reported to one session."""
MAX_BYTES: Final = 16 * 1024


def is_new_problem(call: HookCall, files: HookFiles) -> bool:
    """Whether the session does not know yet why this call is not guarded. From now on it counts as known."""
    if not call.problem or call.event != "pre-edit":
        return False
    name = list_name(call, "problems")
    reported = files.text_of(name, MAX_BYTES).splitlines()
    if call.problem in reported or len(reported) >= MAX_PROBLEMS:
        return False
    with suppress(OSError):
        files.append(name, f"{call.problem}\n")
    return True


def describe_unguarded_git(problem: str) -> str:
    """That a git command is not guarded, which may take away the work of all others."""
    return f"holdlog: {problem}; this git command is not guarded."


def add_problem(call: HookCall, output: dict[str, Any]) -> dict[str, Any]:
    """The output for the host with a warning that the call is not guarded."""
    end = "" if "not guarded" in call.problem else ", so this call is not guarded"
    return merge([output, warning(call, f"holdlog: {call.problem}{end}.")])
