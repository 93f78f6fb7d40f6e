"""Requests to undo what a run wrote: find its writes, then show or make the revert."""

import secrets
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple, get_args

from pydantic import TypeAdapter

from holdlog.adapters.api.changes.presenter import revert_result
from holdlog.adapters.api.changes.responses import RevertResult
from holdlog.adapters.api.past.requests import point_in_time
from holdlog.adapters.api.request import CommandRequest, Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.validation import NAME, SESSION, STORED_AGENT, checked, text
from holdlog.adapters.auth.identity import SessionSource, is_hashed
from holdlog.domain import revert
from holdlog.domain.claims.lease import Who
from holdlog.domain.commands import Outcome
from holdlog.domain.message import Caller
from holdlog.domain.names import acts_for
from holdlog.domain.ports import Reader
from holdlog.domain.progress import Progress, ignore_progress
from holdlog.domain.record import Record
from holdlog.domain.refusals import InvalidError
from holdlog.domain.revert import MAX_KEYS, Revert, Reverted, Run, RunBlock
from holdlog.projections import fold

SCANNED_AT_ONCE: Final = 50_000
"""Positions of the log that one statement reads."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of JSON that one revert may restore: other writers wait meanwhile."""


class RunWrites(NamedTuple):
    """What a run wrote last, by key. `request`: the arguments that named the run."""

    run: Run
    blocks: tuple[RunBlock, ...]
    request: str


class RevertRequests:
    """Builds requests that undo what a run wrote. For people: they need the grant `admin` on the namespace, or on all
    of them."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def find(
        self,
        session: str | None = None,
        correlation_id: str | None = None,
        agent: str | None = None,
        since: datetime | str | None = None,
        namespace: str | None = None,
        progress: Progress = ignore_progress,
    ) -> Query[RunWrites]:
        """Find what a run wrote, for `preview` and `revert`. `session`: as responses show it, or as its client named
        it. `progress`: gets the positions that were read, and those that will be. The query raises InvalidError if the
        run wrote more than `MAX_KEYS` keys, or the values to restore have more than `MAX_BYTES`."""
        if agent is not None and session is None:
            raise InvalidError("agent: needs session; a correlation id alone names the writes")
        if session is None and correlation_id is None:
            raise InvalidError("session: required, or correlation_id")
        if session is not None and correlation_id is not None:
            raise InvalidError("correlation_id: not together with session; pass one of them")
        run = Run(
            sessions=() if session is None else self._sessions(text(session, "session", SESSION)),
            correlation_id=None if correlation_id is None else text(correlation_id, "correlation_id", SESSION),
            agent=None if agent is None else text(agent, "agent", STORED_AGENT),
            since=0 if since is None else point_in_time(None, since, ("since", "since")).at or 0,
        )
        namespace = None if namespace is None else text(namespace, "namespace", NAME)
        self._rules.require("admin", "*" if namespace is None else namespace)
        request = _REQUEST.dump_json((run, namespace)).decode()

        def answer(reader: Reader) -> RunWrites:
            if run.since > reader.at:
                raise InvalidError("since: is in the future")
            found = _earliest(reader, run, namespace, progress)
            blocks = (revert.read_block(run, it.namespace, it.key, earliest, reader) for it, earliest in found.items())
            return RunWrites(run, tuple(_bounded(blocks)), request)

        return Query(answer, large=True)

    def preview(self, writes: RunWrites, by: str, caller: Caller) -> Query[RevertResult]:
        """What `revert` would do now."""
        command = self._command(writes, by)

        def answer(reader: Reader) -> RevertResult:
            who = Who(command.by, caller.principal, caller.session)
            decision = revert.decide(command, who, reader, self._rules.steady())
            outcome = Reverted(tuple(decision.undone), tuple(decision.kept), "", reader.position())
            return revert_result(outcome, self._rules, dry_run=True)

        return Query(answer, large=True)

    def revert(self, writes: RunWrites, by: str) -> CommandRequest[RevertResult]:
        def answer(outcome: Outcome) -> RevertResult:
            assert isinstance(outcome, Reverted)
            return revert_result(outcome, self._rules)

        return CommandRequest(self._command(writes, by), answer)

    def _command(self, writes: RunWrites, by: str) -> Revert:
        run, blocks, request = writes
        correlation_id = f"revert-{secrets.token_hex(6)}"
        return checked(
            lambda: Revert(
                run=run, blocks=blocks, by=by, correlation_id=correlation_id, request_digest=f"{request}{by}"
            ),
            by="reverted_by",
        )

    def _sessions(self, given: str) -> tuple[str, ...]:
        """The salted hashes that a session may have: its own if that was given, or those of a text from any source."""
        hashed = (self._rules.identity.session(source, given) for source in get_args(SessionSource))
        return (given, *hashed) if is_hashed(given) else tuple(hashed)


def _earliest(reader: Reader, run: Run, namespace: str | None, progress: Progress) -> dict[Record, int]:
    """The keys that a run wrote, each with the first version that it did. Raises InvalidError for too many."""
    end, after, found = reader.position(), 0, dict[str, int]()
    keys: dict[Record, int] = {}
    while after < end:
        upto = min(after + SCANNED_AT_ONCE, end)
        for stream, version, by in reader.writes_of(run.sessions, run.correlation_id, run.since, after, upto):
            if stream not in found and (run.agent is None or acts_for(by, run.agent)):
                found[stream] = version
                key = fold.initial(stream)
                assert isinstance(key, Record)
                if namespace in (None, key.namespace):
                    keys[key] = version
        if len(keys) > MAX_KEYS:
            raise InvalidError(
                f"session: wrote more than {MAX_KEYS} keys, the most that one revert may change; name a namespace, or a"
                " later time with since"
            )
        progress(upto, end)
        after = upto
    return keys


def _bounded(blocks: Iterable[RunBlock]) -> Iterator[RunBlock]:
    """The blocks. Raises InvalidError if their bases are too large."""
    size = 0
    for block in blocks:
        size += len(block.base.value.text)
        if size > MAX_BYTES:
            raise InvalidError(
                f"session: the values to restore have more than {MAX_BYTES} bytes, the most that one revert may write;"
                " name a namespace, or a later time with since"
            )
        yield block


_REQUEST: Final = TypeAdapter(tuple[Run, str | None])
