"""What the requests of one caller share: settings, clocks, grants, names of resources, and what responses may show."""

import logging
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Self, TypeVar

from pydantic import BaseModel, TypeAdapter

from holdlog.adapters.api.claims import presenter
from holdlog.adapters.api.claims.presenter import Moment
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.api.validation import MAX_SHOWN, text, unknown_argument, whole
from holdlog.adapters.api.values.responses import renamed
from holdlog.adapters.auth.grants import EVERYTHING, Grants
from holdlog.adapters.auth.identity import Identity
from holdlog.domain.claims.lease import SECOND
from holdlog.domain.claims.resource import ClaimableResource, Resource
from holdlog.domain.record import Check, FencingCondition, Transact
from holdlog.domain.refusals import DeniedError, HoldlogError, InvalidError
from holdlog.domain.token import Scope

MAX_RECEIPT: Final = 64
"""Characters."""
PLAIN: Final = re.compile(r"[\w./@+-]+")
_GUARD_FIELDS: Final = ("resource", "version", "receipt")

Shown = TypeVar("Shown", bound=BaseModel)

_RESOURCE: Final = TypeAdapter[str](Resource)
_CLAIMABLE: Final = TypeAdapter[str](ClaimableResource)
_log = logging.getLogger("holdlog")


@dataclass(frozen=True)
class RequestRules:
    """`clock`: microseconds UTC; `steady`: the clock of leases; `connected`: whether a process is alive. `grants`: what
    the caller may do (docs/tokens.md); lists and boards show only what they allow."""

    settings: Settings
    clock: Callable[[], int]
    steady: Callable[[], int]
    connected: Callable[[str], bool]
    identity: Identity
    grants: Grants = EVERYTHING

    def within(self, grants: Grants) -> Self:
        """Return the same rules, restricted to these grants."""
        return replace(self, grants=grants)

    def require(self, scope: Scope, name: str) -> None:
        """Check a grant. `name`: as stored. Raises DeniedError."""
        if self.grants is not EVERYTHING:
            self.grants.require(scope, name)

    def require_to_change(self, command: Transact) -> None:
        """Check the grants of all operations, and of the claims that the command relies on. Raises DeniedError, which
        names the operation of a numbered command."""
        for index, operation in enumerate(command.operations):
            try:
                if not isinstance(operation, Check):
                    self.require("write-values", operation.namespace)
                if isinstance(operation, Check) or operation.is_update:  # whose response may have the value
                    self.require("read-values", operation.namespace)
            except DeniedError as refusal:
                refusal.operation = index if command.numbered else None
                raise
        for claim in command.guard:
            self.require("claim", claim.resource)

    def require_to_see(self, resource: str) -> None:
        if self.grants is not EVERYTHING and not self.grants.sees_claim(resource):
            raise DeniedError(f"read-claims:{resource}")

    def capped(self, seconds: float) -> tuple[float, float | None]:
        """Seconds to wait, and the cap if it applied."""
        cap = self.settings.max_wait
        return (seconds, None) if seconds <= cap else (cap, cap)

    def resource(self, given: str, argument: str = "resource") -> str:
        """The canonical name of a resource."""
        workspaces = self.settings.workspaces
        if workspaces is None or not isinstance(given, str):
            return text(given, argument, _RESOURCE)
        return _spelled(workspaces.canonical, given, argument)

    def claimable(self, given: str, argument: str = "resource") -> str:
        """Like `resource`, but for a new claim: also rejects names that protect nothing."""
        workspaces = self.settings.workspaces
        if workspaces is None or not isinstance(given, str):
            return text(given, argument, _CLAIMABLE)
        return _spelled(workspaces.claimable, given, argument)

    def file(self, path: str, argument: str = "resource") -> str | None:
        """The canonical name of the file at a path, encoded if it cannot be claimed as it is called; None if
        it is in no workspace."""
        workspaces = self.settings.workspaces
        if workspaces is None:
            return text(path, argument, _CLAIMABLE)
        try:
            return workspaces.file(path)
        except ValueError as error:
            raise InvalidError(f"{argument}: {error}") from None

    def find(self, given: str, argument: str = "resource") -> str | None:
        """Like `resource`, for what may also be the path of a file that cannot be claimed as it is called, whether it
        exists or not; None if it is in no workspace."""
        if self.settings.workspaces is None or "://" in given:
            return self.resource(given, argument)
        if not os.path.isabs(given):
            with suppress(InvalidError):
                return self.claimable(given, argument)
        return self.file(given, argument)

    def receipt(self, given: object) -> str:
        """The salted hash, as stored in leases. Raises InvalidError."""
        if not isinstance(given, str) or not 1 <= len(given) <= MAX_RECEIPT or not given.isascii():
            raise InvalidError(
                f"receipt: must be the receipt returned with your claim, at most {MAX_RECEIPT} characters"
            )
        return self.identity.receipt(given)

    def guards(self, given: object) -> tuple[FencingCondition, ...]:
        """Fencing conditions of a write: `[{"resource": …, "version": …}]`, with the `receipt` of a claim that was made
        without a session."""
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            raise InvalidError("guard: must be a list of objects with resource and version")
        guards = []
        for number, item in enumerate(given):
            argument = f"guard[{number}]"
            if isinstance(item, dict) and (unknown := [name for name in item if name not in _GUARD_FIELDS]):
                shown = (
                    unknown[0] if PLAIN.fullmatch(str(unknown[0])) and len(str(unknown[0])) <= MAX_SHOWN else "a field"
                )
                raise InvalidError(f"{argument}: {unknown_argument(shown, _GUARD_FIELDS)}")
            if not isinstance(item, dict) or set(item) - {"receipt"} != {"resource", "version"}:
                raise InvalidError(
                    f"{argument}: must be an object with resource and version, and receipt if you were given one"
                )
            resource = self.resource(item["resource"], f"{argument}.resource")
            version = whole(item["version"], f"{argument}.version")
            receipt = self.receipt(item["receipt"]) if item.get("receipt") is not None else None
            guards.append(FencingCondition.model_construct(resource=resource, version=version, receipt=receipt))
        return tuple(guards)

    def shown(self, answer: Shown) -> Shown:
        """Rewrite a response for the caller: resources get names that this process's agents can pass back, and
        `moved_to` is removed if the caller may not see it."""
        moved = getattr(answer, "moved_to", None) if self.grants is not EVERYTHING else None
        if moved is not None and not self.grants.sees_claim(moved):
            hint = (getattr(answer, "hint", None) or "").replace(presenter.MOVED, presenter.MOVED_UNSEEN)
            answer = answer.model_copy(update={"moved_to": None, "hint": hint or None})
        workspaces = self.settings.workspaces
        return answer if workspaces is None else renamed(answer, workspaces.shown)

    def describe(self, error: HoldlogError) -> str:
        """An error in one line. Callers over HTTP must not learn where the database is: that part goes to the log."""
        text = str(error)
        if self.settings.keeps or not text.startswith("the database "):
            return text
        _log.warning("%s", text)
        return text.partition(": ")[0]

    def moment(self) -> Moment:
        return Moment(self.clock(), self.steady(), self.connected, round(self.settings.grace * SECOND))

    @property
    def spelled(self) -> Callable[[str], str] | None:
        """How responses spell a stored resource; None: unchanged."""
        workspaces = self.settings.workspaces
        return None if workspaces is None else workspaces.shown

    def spell(self, resource: str) -> str:
        """Spell a stored resource as responses do."""
        return (self.spelled or str)(resource)

    @property
    def sees(self) -> Callable[[str], bool] | None:
        """Which streams the caller may see; None: all."""
        return None if self.grants is EVERYTHING else self.grants.sees


def _spelled(rule: Callable[[str], str], given: str, argument: str) -> str:
    try:
        return rule(given)
    except ValueError as error:
        raise InvalidError(f"{argument}: {error}") from None
