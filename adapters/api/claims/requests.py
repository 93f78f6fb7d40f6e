"""Requests about claims: check the arguments, then define what to run and how to respond."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from holdlog.adapters.api.claims import presenter, responses
from holdlog.adapters.api.claims.sessions import rows
from holdlog.adapters.api.pagination import MAX_PAGE, chunks, page
from holdlog.adapters.api.request import BlockingQuery, ClaimRequest, CommandRequest, Query
from holdlog.adapters.api.rules import PLAIN, RequestRules
from holdlog.adapters.api.validation import (
    STORED_AGENT,
    after_argument,
    checked,
    number_of_seconds,
    page_size,
    text,
    whole,
)
from holdlog.adapters.api.values.responses import Lost, Result
from holdlog.adapters.auth.grants import EVERYTHING
from holdlog.adapters.auth.identity import new_receipt
from holdlog.adapters.operating_system.liveness import Process
from holdlog.domain.agent import Register, RegisterOutcome
from holdlog.domain.claims.board import ClaimBoard
from holdlog.domain.claims.board_storage import load_board
from holdlog.domain.claims.claim import Claim, Grant
from holdlog.domain.claims.commands import (
    MAX_RESOURCES,
    AcquireClaim,
    ClaimAcquired,
    Queued,
    ReleaseClaim,
    ReleaseOutcome,
)
from holdlog.domain.claims.lease import SECOND, Loss
from holdlog.domain.claims.resource import custom_name
from holdlog.domain.commands import Outcome
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import DeniedError, InvalidError
from holdlog.projections.waiting import what_overlaps

BOARD_PAGE: Final = 100
MAX_RECEIPT: Final = 64
"""Characters."""
LONGEST_LEASE: Final = 24 * 60 * 60.0
"""Seconds."""

MAX_SUGGESTED: Final = 64
"""Characters of a custom name in a hint."""

Shown = TypeVar("Shown", bound=BaseModel)
Answer = Result | Query[Result]


class ClaimRequests:
    """Builds requests about claims."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def claim(
        self,
        resource: str,
        agent: str,
        also: Sequence[str] = (),
        alternatives: Sequence[str] = (),
        lease_seconds: float | None = None,
        wait_seconds: float = 0,
        mode: str = "exclusive",
        note: str | None = None,
        receipt: str | None = None,
        is_stored: bool = False,
    ) -> ClaimRequest[Result]:
        """Claim resources. `receipt`: the receipt from the response with the grant or ticket, for callers without a
        session. `is_stored`: `resource` is spelled as it is stored."""
        if lease_seconds is None:
            lease = self._rules.settings.lease
        else:
            lease = number_of_seconds(lease_seconds, "lease_seconds", 1.0, LONGEST_LEASE)
        wait, cap = self._rules.capped(number_of_seconds(wait_seconds, "wait_seconds"))
        arguments: dict[str, Any] = {
            "resource": resource if is_stored else self._rules.claimable(resource),
            "agent": agent,
            "also": self._resources(also, "also", self._rules.claimable),
            "alternatives": self._resources(alternatives, "alternatives", self._rules.claimable),
            "mode": mode,
            "note": note,
            "lease": round(lease * SECOND),
            "explicit": lease_seconds is not None,
            "most": self._rules.settings.max_claims,
        }
        fresh = new_receipt()
        arguments["new_receipt"] = self._rules.identity.receipt(fresh)
        receipts = {arguments["new_receipt"]: fresh}
        if receipt is not None:
            arguments["receipt"] = self._rules.receipt(receipt)
            receipts[arguments["receipt"]] = receipt
        command = checked(lambda: AcquireClaim(**arguments, wait=round(wait * SECOND)))
        named = (command.resource, *command.also, *command.alternatives)
        given = dict(zip(named, (resource, *also, *alternatives), strict=True))
        for name in given:
            self._rules.require("claim", name)
        again = command.model_copy(update={"wait": 0}) if wait else command

        def answer(outcome: Outcome) -> Answer:
            shown = receipts.get(outcome.receipt) if isinstance(outcome, ClaimAcquired | Queued) else None
            if isinstance(outcome, Queued):
                return self._rules.shown(presenter.queued(outcome, self._rules.moment(), shown, cap))
            assert isinstance(outcome, ClaimAcquired)
            if spellings := self._spellings_elsewhere(outcome.resource):
                return Query(lambda reader: self._acquired(outcome, given, shown, self._elsewhere(spellings, reader)))
            return self._acquired(outcome, given, shown, [])

        return ClaimRequest(command, again, answer, wait)

    def _acquired(
        self,
        outcome: ClaimAcquired,
        given: Mapping[str, str],
        receipt: str | None,
        elsewhere: list[responses.Elsewhere],
    ) -> Result:
        folder, instead = self._is_folder(outcome), self._instead_of(outcome, given)
        keeps = self._rules.settings.keeps
        nested = keeps and self._is_nested(outcome)
        return self._rules.shown(presenter.acquired(outcome, elsewhere, folder, keeps, receipt, instead, nested))

    def release(
        self,
        resource: str | None,
        agent: str,
        also: Sequence[str] = (),
        outcome: str | None = None,
        moved_to: str | None = None,
        note: str | None = None,
        version: int | None = None,
        forced: bool = False,
        receipt: str | None = None,
        holder: str | None = None,
    ) -> CommandRequest[responses.Released | responses.AlreadyFree]:
        """Release a resource, or everything that the agent holds. `version`: release only this grant. `forced`: a
        person, `agent`, takes the claim from its holders, or only from those named `holder`; `note` is the reason.
        `receipt`: as for `claim`."""
        arguments: dict[str, Any] = {
            "resource": None if resource is None else self._rules.resource(resource),
            "agent": agent,
            "also": self._resources(also, "also", self._rules.resource),
            "outcome": outcome,
            "moved_to": None if moved_to is None else self._rules.claimable(moved_to, "moved_to"),
            "note": note,
            "version": version,
            "forced": forced,
            "holder": holder,
            "receipt": None if receipt is None else self._rules.receipt(receipt),
        }
        command = checked(lambda: ReleaseClaim(**arguments))
        for name in (*filter(None, [command.resource]), *command.also):
            self._rules.require("admin" if forced else "claim", name)

        def answer(outcome: Outcome) -> responses.Released | responses.AlreadyFree:
            assert isinstance(outcome, ReleaseOutcome)
            several = command.resource is None or bool(command.also)
            return self._rules.shown(presenter.released(outcome, command.resource, several))

        return CommandRequest(command, answer)

    def register(
        self, agent: str, name: str | None = None, model: str | None = None, purpose: str | None = None
    ) -> CommandRequest[responses.RegisteredAgent]:
        command = checked(lambda: Register(agent=agent, name=name, model=model, purpose=purpose))
        if not self._rules.grants.allows_some("claim", "write-values", "write-threads"):
            raise DeniedError("claim or write for any name")

        def answer(outcome: Outcome) -> responses.RegisteredAgent:
            assert isinstance(outcome, RegisterOutcome)
            return responses.RegisteredAgent(**outcome._asdict())

        return CommandRequest(command, answer)

    def status(self, resource: str, version: int | None = None) -> Query[responses.Available | responses.Held]:
        resource = self._rules.resource(resource)
        if version is not None:
            whole(version, "version")
        self._rules.require_to_see(resource)

        def answer(reader: Reader) -> responses.Available | responses.Held:
            board = self._board(reader, [resource])
            holders = [hold.grant.agent for hold in presenter.blocking_holds(resource, board)]
            elsewhere = self._elsewhere(self._spellings_elsewhere(resource), reader)
            profiles = reader.agents(holders)
            return self._rules.shown(
                presenter.status(resource, board, self._rules.moment(), version, profiles, elsewhere)
            )

        return Query(answer)

    def board(
        self, agent: str | None = None, limit: int = BOARD_PAGE, after: str | None = None
    ) -> Query[responses.Board]:
        """List claims and queues; with `agent`, only those of this agent and its sub-agents."""
        size, after = page_size(limit), after_argument(after, "after")
        if agent is not None:
            agent = text(agent, "agent", STORED_AGENT)

        def answer(reader: Reader) -> responses.Board:
            found, more = page(self._claims(reader, after, size + 1), size)
            names = [claim.resource for claim in found]
            board = self._board(reader, names)
            agents = {lease.agent for lease in board.leases.values()}
            profiles = {profile.agent: profile for profile in reader.agents(sorted(agents))}
            return self._rules.shown(presenter.board(names, board, self._rules.moment(), profiles, agent, more))

        return Query(answer, large=True)

    def agents(self, processes: Sequence[Process], agent: str | None = None) -> Query[responses.AgentSessions]:
        """The board with a row for each session, and for each of these processes that holds nothing."""
        if agent is not None:
            agent = text(agent, "agent", STORED_AGENT)

        def answer(reader: Reader) -> responses.AgentSessions:
            names = [claim.resource for claim in self._claims(reader, None, MAX_PAGE)]
            board, moment = self._board(reader, names), self._rules.moment()
            agents = sorted({lease.agent for lease in board.leases.values()})
            profiles = {profile.agent: profile for profile in reader.agents(agents)}
            shown = presenter.board(names, board, moment, profiles, agent, more=False)
            found = rows(board, moment, profiles, agent, processes)
            return self._rules.shown(responses.AgentSessions(**shown.__dict__ | {"agents": found}))

        return Query(answer, large=True)

    def wait(
        self, resource: str, timeout_seconds: float = 30
    ) -> BlockingQuery[responses.Available | responses.WaitTimeout]:
        resource = self._rules.resource(resource)
        seconds, cap = self._rules.capped(number_of_seconds(timeout_seconds, "timeout_seconds"))
        self._rules.require_to_see(resource)

        def read(reader: Reader, elapsed: float) -> responses.Available | None:
            board = self._board(reader, [resource])
            if presenter.blocking_holds(resource, board):
                return None
            return self._rules.shown(presenter.available(resource, board, elapsed))

        def timed_out(reader: Reader, elapsed: float) -> responses.Available | responses.WaitTimeout:
            board = self._board(reader, [resource])
            holds = presenter.blocking_holds(resource, board)
            if not holds:
                return self._rules.shown(presenter.available(resource, board, elapsed))
            return self._rules.shown(presenter.wait_timeout(resource, holds[0], self._rules.moment(), elapsed, cap))

        return BlockingQuery(read, timed_out, seconds, what_overlaps(resource))

    def lost(self, losses: Sequence[Loss]) -> Query[list[Lost]]:
        """The lost claims, with their current holders."""

        def answer(reader: Reader) -> list[Lost]:
            board = self._board(reader, [loss.resource for loss in losses])

            def holder_of(resource: str) -> Grant | None:
                return next((hold.grant for hold in presenter.blocking_holds(resource, board)), None)

            return [self._rules.shown(loss) for loss in presenter.lost(losses, holder_of)]

        return Query(answer)

    def spellings(self, given: str) -> tuple[str, ...]:
        """The resources whose claims affect the status of this one: itself, and the same path in other workspaces."""
        resource = self._rules.resource(given)
        workspaces = self._rules.settings.workspaces
        return (resource, *(other for _, other in (workspaces.elsewhere(resource) if workspaces is not None else ())))

    def _claims(self, reader: Reader, after: str | None, limit: int) -> list[Claim]:
        """Like `reader.claims`, but only those that the caller may see."""
        if self._rules.grants is EVERYTHING:
            return reader.claims(after, limit)
        found = chunks(reader.claims, after, lambda it: it.resource)
        return list(islice((it for it in found if self._rules.grants.sees_claim(it.resource)), limit))

    def _resources(self, given: Sequence[str], argument: str, spelled: Callable[[str, str], str]) -> tuple[str, ...]:
        if given == ():
            return ()
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise InvalidError(f"{argument}: must be a list of resources")
        if len(given) >= MAX_RESOURCES:
            raise InvalidError(f"{argument}: has {len(given)} resources; a call takes at most {MAX_RESOURCES} in all")
        return tuple(spelled(resource, f"{argument}[{number}]") for number, resource in enumerate(given))

    def _board(self, reader: Reader, resources: Sequence[str]) -> ClaimBoard:
        return load_board(reader, resources, self._rules.steady(), self._rules.clock())

    def _spellings_elsewhere(self, resource: str) -> list[tuple[str, str]]:
        """The other workspaces, each with the resource for the same path there; only those that the caller may see."""
        workspaces = self._rules.settings.workspaces
        spellings = workspaces.elsewhere(resource) if workspaces is not None else []
        if self._rules.grants is not EVERYTHING:
            spellings = [(name, other) for name, other in spellings if self._rules.grants.sees_claim(other)]
        return spellings

    def _elsewhere(self, spellings: list[tuple[str, str]], reader: Reader) -> list[responses.Elsewhere]:
        """Who holds these in other workspaces."""
        if not spellings:
            return []
        board = self._board(reader, [other for _, other in spellings])
        return [
            presenter.claimed_in(name, holds[0].grant)
            for name, other in spellings
            if (holds := presenter.blocking_holds(other, board))
        ]

    def _is_folder(self, outcome: ClaimAcquired) -> bool:
        """Whether a folder was claimed by its name alone."""
        workspaces = self._rules.settings.workspaces
        if workspaces is None:
            return False
        return any(workspaces.is_folder(name) for name in (outcome.resource, *(name for name, _ in outcome.also)))

    def _is_nested(self, outcome: ClaimAcquired) -> bool:
        """Whether a file was claimed that belongs to another repository inside the workspace."""
        workspaces = self._rules.settings.workspaces
        names = (outcome.resource, *(name for name, _ in outcome.also))
        return workspaces is not None and any(map(workspaces.is_nested, names))

    def _instead_of(self, outcome: ClaimAcquired, given: Mapping[str, str]) -> str | None:
        """The custom name to suggest for the first granted path without a file, derived from the name that the caller
        passed. None over HTTP, where callers share one view of all paths and their files may be on another machine."""
        workspaces = self._rules.settings.workspaces
        if workspaces is None or not self._rules.settings.keeps or outcome.already:
            return None
        names = (outcome.resource, *(name for name, _ in outcome.also))
        missing = (given[name] for name in names if name in given and workspaces.is_missing(name, given[name]))
        return next((_custom(name) for name in missing), None)


def _custom(given: str) -> str:
    """The custom name that a hint suggests for a path, quoted if necessary."""
    name = custom_name(given)
    if name is None or len(name) > MAX_SUGGESTED or '"' in name:
        return "custom://merge"
    return f"custom://{name}" if PLAIN.fullmatch(name) else f'"custom://{name}"'
