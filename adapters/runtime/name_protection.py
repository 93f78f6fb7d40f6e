"""Which agent names a caller with a token may use: neither those of the server's own user nor those of other tokens."""

import time
import unicodedata
from collections.abc import Iterable
from typing import Final

from holdlog.adapters.api.request import Query
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.runtime.verifier import MOST_REMEMBERED, REMEMBERED_SECONDS
from holdlog.domain.agent import Register
from holdlog.domain.claims.commands import AcquireClaim, RecordFileChange, ReleaseClaim
from holdlog.domain.commands import AnyCommand
from holdlog.domain.message import Caller
from holdlog.domain.record import ClearNamespace, Delete, Transact
from holdlog.domain.refusals import InvalidError
from holdlog.domain.revert import Revert
from holdlog.domain.threads.commands import Append, ChangeData, ForkThread, ReplaceResults, StartThread
from holdlog.domain.token import token_name

_KINDS: Final = ("token:", "jwt:", "static")
"""Prefixes of principal names."""


class OwnNames:
    """Checks agent names. Safe for coroutines of one loop. `engine`: the main store, which has the tokens of all
    spaces. `local`: names of the user that runs the server."""

    def __init__(self, engine: Engine, local: Iterable[str]) -> None:
        self._engine = engine
        self._local = frozenset(map(first_part, local))
        self._remembered: dict[str, tuple[bool, float, int]] = {}

    async def require(self, command: AnyCommand, caller: Caller) -> None:
        """Raise InvalidError for a command under a name that belongs to somebody else. The local user, who has no
        principal, may use every name. Releases and commands without a name are not checked, so that holders can release
        what they were granted before. Names of tokens are cached for a second; changes that this process made to a
        token apply immediately.
        """
        named = _name_in(command)
        if caller.principal is None or named is None:
            return
        argument, name = named
        if not _is_own(name, caller.principal) and await self._is_token_name(first_part(name)):
            raise InvalidError(
                f"{argument}: this name belongs to the user that runs the server, or to another token; choose a name"
                " of your own, for example claude-7f3a"
            )

    async def _is_token_name(self, first: str) -> bool:
        if first in self._local or first.startswith(_KINDS[:2]) or first == _KINDS[2]:
            return True
        try:
            token_name(first)
        except ValueError:
            return False
        now, changes = time.monotonic(), self._engine.token_changes
        found = self._remembered.get(first)
        if found is not None and now < found[1] and changes == found[2]:
            return found[0]
        is_token_name = await self._engine.read_async(Query(lambda reader: reader.token(first).is_known))
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[first] = (is_token_name, now + REMEMBERED_SECONDS, changes)
        return is_token_name


def first_part(name: str) -> str:
    """The part of a name before its first slash, without case and compatibility forms. Names are compared by it."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).partition("/")[0]


def _is_own(name: str, principal: str) -> bool:
    kind, _, own = principal.partition(":")
    return name == principal or name.startswith(principal + "/") or (kind == "token" and first_part(name) == own)


def _name_in(command: AnyCommand) -> tuple[str, str] | None:
    """The argument that names the author, and the name."""
    match command:
        case Transact(operations=operations, by=by):
            return ("deleted_by" if all(isinstance(it, Delete) for it in operations) else "updated_by"), by
        case ClearNamespace(by=by):
            return "deleted_by", by
        case Revert(by=by):
            return "reverted_by", by
        case AcquireClaim(agent=agent) | Register(agent=agent) | RecordFileChange(agent=agent):
            return "agent", agent
        case ReleaseClaim(agent=agent, forced=True):
            return "agent", agent
        case StartThread(by=by) | ForkThread(by=by) | Append(by=by) | ChangeData(by=by) | ReplaceResults(by=by):
            return "agent", by
        case _:
            return None
