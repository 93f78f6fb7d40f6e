"""The read models of holdlog: activity of agents, and collisions. Commands catch up before they read them."""

from typing import Any, Final

from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.persistence import Tracking
from eventsourcing.projection import Projection

from holdlog.adapters.api.questions.reports import ModelReport
from holdlog.adapters.api.request import Answered
from holdlog.adapters.compose import open_read_models, recorder_of
from holdlog.adapters.eventsourcing.events import (
    ClaimExpiredEvent,
    ClaimGrantedEvent,
    ClaimQueuedEvent,
    ClaimReleasedEvent,
    ClaimResumedEvent,
    ClaimUnqueuedEvent,
    LogEvent,
    ValueExpiredEvent,
)
from holdlog.adapters.eventsourcing.mapper import LogMapper
from holdlog.adapters.runtime.engine import Engine
from holdlog.adapters.stores.read_models.view import ReadModelView
from holdlog.adapters.stores.sql.recorder import LogRecorder
from holdlog.domain.progress import Progress, ignore_progress
from holdlog.projections.activity import HOUR
from holdlog.projections.collisions import RecordedHold, RecordedTicket, blockers

PAGE: Final = 1_000
"""Events per transaction of the view."""


class ReadModels(Projection[ReadModelView]):
    """Counts events per agent and hour, and notes who queued behind whom. Callers open the view's transaction."""

    @singledispatchmethod
    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        raise TypeError(f"{type(domain_event).__name__} is not an event of the log")

    @process_event.register
    def any_event(self, event: LogEvent, tracking: Tracking) -> None:
        self.view.reach(tracking, event.envelope.digest)
        self.view.count(event.author, event.author_principal, event.envelope.at // HOUR, event.TOPIC)

    @process_event.register
    def value_expired(self, event: ValueExpiredEvent, tracking: Tracking) -> None:
        self.view.reach(tracking, event.envelope.digest)  # no agent caused it

    @process_event.register
    def queued(self, event: ClaimQueuedEvent, tracking: Tracking) -> None:
        caller = event.envelope.caller
        version, wanted = event.originator_version, (event.resource, *event.also, *event.alternatives)
        ticket = RecordedTicket(
            event.resource, version, event.agent, event.principal, caller.session, event.mode, event.turn
        )
        self.any_event(event, tracking)
        behind = blockers(ticket, self.view.holds_at(wanted), self.view.tickets_at(wanted))
        self.view.queue(ticket, behind, event.envelope.at)

    @process_event.register
    def unqueued(self, event: ClaimUnqueuedEvent, tracking: Tracking) -> None:
        if event.why == "left":
            self.any_event(event, tracking)
        else:
            self.view.reach(tracking, event.envelope.digest)
        at = None if event.why == "absent" else event.envelope.at  # the log has no time for it: noticed later
        self.view.unqueue(event.resource, event.ticket, at, event.why == "granted")

    @process_event.register
    def granted(self, event: ClaimGrantedEvent, tracking: Tracking) -> None:
        if event.instead_of is not None:
            self.view.end_hold(event.resource, event.instead_of)
        self._hold(event, tracking)

    @process_event.register
    def resumed(self, event: ClaimResumedEvent, tracking: Tracking) -> None:
        self.view.end_hold(event.resource, event.grant)
        self._hold(event, tracking)

    @process_event.register
    def released(self, event: ClaimReleasedEvent, tracking: Tracking) -> None:
        self.any_event(event, tracking)
        self.view.end_hold(event.resource, event.grant)

    @process_event.register
    def expired(self, event: ClaimExpiredEvent, tracking: Tracking) -> None:
        self.view.reach(tracking, event.envelope.digest)
        self.view.end_hold(event.resource, event.grant)

    def _hold(self, event: ClaimGrantedEvent | ClaimResumedEvent, tracking: Tracking) -> None:
        self.any_event(event, tracking)
        version = event.originator_version
        self.view.hold(RecordedHold(event.resource, version, event.agent, event.principal, event.session, event.mode))
        if event.ticket is not None:
            self.view.unqueue(event.resource, event.ticket, event.envelope.at, True)


def catch_up(
    recorder: LogRecorder, application_name: str, view: ReadModelView, progress: Progress = ignore_progress
) -> int:
    """Bring the view up to the end of the log; return the position. Starts again from the beginning if the log is not
    the one that the view has read, such as one restored from a backup. `progress`: counts events."""
    mapper, models = LogMapper(), ReadModels(view)
    position, digest = view.reached(application_name)
    if position:
        last = recorder.select_notifications(position, 1, position)
        if not last or last[0].digest != digest:
            view.clear()
            position = 0
    start, end = position, recorder.max_notification_id() or 0
    while page := recorder.select_notifications(position, PAGE, inclusive_of_start=False):
        with view.transaction():
            for stored in page:
                models.process_event(mapper.to_domain_event(stored), Tracking(application_name, stored.id))
        position = page[-1].id
        progress(position - start, max(end, position) - start)
    return position


def run_report(engine: Engine, report: ModelReport[Answered], progress: Progress = ignore_progress) -> Answered:
    """Bring the read models of a store up to the end of its log, then answer from them. `progress`: as for `catch_up`.
    Raises HoldlogError."""
    period = engine.read(report.period)
    with engine.store.reader() as reader:
        store_id = reader.meta("store_id") or ""
    with open_read_models(engine.location, store_id) as view:
        position = catch_up(recorder_of(engine), f"holdlog/{store_id}", view, progress)
        with engine.store.reader() as reader:
            return report.answer(reader, view, period, position)
