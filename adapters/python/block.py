"""`claimed`: a block of code that holds a claim. Its steps serve both halves of the library."""

from contextlib import ExitStack
from typing import Any

from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.operations.claims import Claim, FindEnd, Release
from holdlog.adapters.operations.steps import Run, Steps, claim
from holdlog.domain.claims.commands import Finish, ListGrants, Renewal
from holdlog.domain.claims.holder import HolderId
from holdlog.domain.claims.results import Deadlock
from holdlog.domain.moment import SECOND, Caller
from holdlog.domain.refusals import BusyError, DeadlockError, FencedError
from holdlog.domain.results import Lost


class Block:
    """A claim that a block of code holds. Pass `guard` to writes, which are then refused once the claim is lost. What
    `outcome`, `moved_to` and `note` say at its end, the next holder learns.

    resource: its name in canonical form; version, position: of the grant.
    """

    def __init__(self, arguments: dict[str, Any], caller: Caller, engine: Engine) -> None:
        """Raises InvalidError."""
        self._last: dict[str, Any] = {"outcome": arguments.pop("outcome")}
        self._command = Claim.parse(arguments)
        self._check(self._last)
        self._caller = caller
        self._engine = engine
        self._grants: tuple[tuple[str, int, int], ...] | None = None
        self._before: frozenset[str] = frozenset()
        """What was held before, and stays held."""
        self._is_granted = False
        self._call = ExitStack()
        self.resource = self._command.resource
        self.agent = self._command.agent
        self.version = 0
        self.position = 0
        self.lost: list[Lost] | None = None
        """Claims of the session that ended before without its doing."""

    @property
    def guard(self) -> list[dict[str, Any]]:
        """Conditions for writes: all resources, with the versions of their grants."""
        return [{"resource": resource, "version": version} for resource, version, _ in self._grants or ()]

    @property
    def outcome(self) -> str | None:
        """What the block did to its resource: modified, created, deleted or released."""
        return self._last.get("outcome")

    @outcome.setter
    def outcome(self, outcome: str) -> None:
        self._last = self._check(self._last | {"outcome": outcome})

    @property
    def moved_to(self) -> str | None:
        """The new name of what the block moved."""
        return self._last.get("moved_to")

    @moved_to.setter
    def moved_to(self, name: str) -> None:
        self._last = self._check(self._last | {"outcome": "moved", "moved_to": name})

    @property
    def note(self) -> str | None:
        """For the next holder."""
        return self._last.get("note")

    @note.setter
    def note(self, note: str) -> None:
        self._last = self._check(self._last | {"note": note})

    def _check(self, last: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a release as it checks them. Raises InvalidError."""
        release = Release.parse({"resource": self._command.resource, "agent": self._command.agent} | last)
        return {name: getattr(release, name) for name in ("outcome", "moved_to", "note")}

    def enter(self) -> Steps:
        """Raises BusyError, DeadlockError."""
        self._before = frozenset(resource for resource, _, _ in (yield self._list_grants()))
        if self._before.issuperset((self.resource, *(self._command.also or ()))):
            self._command = self._command.model_copy(update={"lease_seconds": None})  # it ends with what encloses it
        command, caller = self._command, self._caller
        result = yield from claim(command, caller, self._engine, leaves=True)
        if not result:
            self._grants = ()
            raise DeadlockError(result) if isinstance(result, Deadlock) else BusyError(result)
        self._is_granted, self.lost = True, result.lost
        self._grants = grants = yield self._list_grants()
        own = {resource: (version, position) for resource, version, position in grants}
        self.version, self.position = own.get(command.resource, (result.version, 0))
        renewals: tuple[Renewal, ...] = ()
        if command.lease_seconds is not None:
            lease = round(command.lease_seconds * SECOND)
            renewals = tuple(Renewal(resource, version, lease) for resource, version, _ in grants)
        who = HolderId(command.agent, command.receipt or caller.session, caller.principal)
        self._call.enter_context(self._engine.beats.open_call(who, renewals))
        return self

    def leave(self, error: BaseException | None) -> Steps:
        """Release what the block claimed, also if it was interrupted when it entered or left. Raises FencedError if it
        had lost any of it, unless the block failed."""
        self._call.close()
        if self._grants is None and (self._is_granted or getattr(error, "in_doubt", True)):
            self._grants = yield self._list_grants()
        if not self._grants:
            return
        missing = yield Run(self._finish(self._grants), self._caller)
        for resource, version in missing:
            if error is None and (fenced := (yield FindEnd(resource=resource, version=version))) is not None:
                raise FencedError(fenced)

    def _list_grants(self) -> Run:
        command = self._command
        resources = tuple(dict.fromkeys((command.resource, *(command.also or ()))))
        return Run(ListGrants(command.agent, resources, command.receipt), self._caller)

    def _finish(self, held: tuple[tuple[str, int, int], ...]) -> Finish:
        grants = tuple((resource, version) for resource, version, _ in held)
        new = tuple((resource, version) for resource, version, _ in held if resource not in self._before)
        return Finish(self._command.agent, grants, new, receipt=self._command.receipt, **self._last)
