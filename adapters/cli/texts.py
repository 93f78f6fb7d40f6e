"""Formats responses for people, and protects terminals from text of agents."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from holdlog.adapters.api.authors import author
from holdlog.adapters.api.claims import responses as claims
from holdlog.adapters.api.values import responses
from holdlog.adapters.api.values.presenter import named
from holdlog.adapters.api.values.responses import Result
from holdlog.adapters.operating_system.location import without_password
from holdlog.domain.names import appears_blank, mixed_scripts

NEXT_STEP = "the first claim or set creates it, such as: holdlog claim README.md; --db names another store"
WIDEST_VALUE = 60
"""Characters of a value in a table."""


def print_note(line: str) -> None:
    """Print a note for the user, apart from the response."""
    sys.stderr.write(f"holdlog: {printable(line, kept='')}\n")


def no_store(place: Path | str, expected: bool = True) -> int:
    """Report that the store does not exist, and what to do next. Returns the exit code: 1 if the store is expected to
    exist, else 0."""
    print_note(f"there is no store at {without_password(place)} yet; {NEXT_STEP}")
    return 1 if expected else 0


def printable(text: str, kept: str = "\n") -> str:
    """The text with all characters that a terminal could interpret (controls, C1, directions) escaped as in JSON,
    except those in `kept`."""
    return "".join(each if each.isprintable() or each in kept else _escaped(each) for each in text)


def marked(name: str) -> str:
    """The name of an agent or resource, safe from look-alikes: mixed scripts are marked, invisible characters are
    escaped as in JSON."""
    shown = "".join(_escaped(each) if appears_blank(each) else each for each in name)
    return f"{shown} (mixed scripts)" if mixed_scripts(name) else shown


def text(result: Result, place: Path | str, command: str = "") -> str:
    """The response for people; `place` is the store's, shown if nothing was found."""
    store = f"the store {without_password(place)}"
    match result:
        case responses.StateRecord(value=value):
            return json.dumps(value, ensure_ascii=False, indent=2)
        case responses.SetResult(version=version) | responses.DeleteResult(version=version):
            return f"version {version}"
        case responses.RecordList(namespace=namespace, records=records):
            rows = [(it.key, f"v{it.version}", author(it.updated_by, it.principal), short(it.value)) for it in records]
            return table(rows) or f"nothing in namespace {namespace} of {store}"
        case responses.NamespaceList(namespaces=namespaces):
            return table([(it.namespace, str(it.count)) for it in namespaces]) or f"no values in {store}"
        case responses.History(history=history):
            entries = [
                (f"v{it.version}", it.event_type, author(it.updated_by, it.principal), moment(it.updated_at), _past(it))
                for it in history
            ]
            return table(entries) or f"nothing in {store}"
        case claims.AgentSessions():
            return _agents(result) or f"nobody holds or waits for anything in {store}"
        case claims.Board():
            return _board(result) or f"nothing is held in {store}"
        case claims.AlreadyClaimed():
            return _sentence(result) + _elsewhere(result)  # its hint is for agents: each command is a session
        case _:
            hint = getattr(result, "hint", None) or ""
            advice = named(hint, "holdlog ").replace("wait_seconds=30", "--wait 30")
            if isinstance(result, claims.NotHolder) and result.held_by is not None:
                advice += "\nA person can take it: holdlog release RESOURCE --force --reason TEXT"
            return _sentence(result) + _elsewhere(result) + (f"\n{advice}" if advice else "")


def remark(result: Result) -> str:
    """An additional note for people; empty for most responses."""
    match result:
        case responses.StateRecord(expires_in_seconds=float() as left, expires_at=end):
            return f"expires in {duration(left)}{_at(end)}"
        case _:
            return ""


def _board(board: claims.Board) -> str:
    """The claims, and below each its queue."""
    lines = {queue.resource: queue.line for queue in board.queues}
    rows: list[tuple[str, ...]] = []
    for held in board.claims:
        shared = "shared" if held.mode == "shared" else ""
        ends = f"ends in {duration(held.expires_in_seconds)}" + ("" if held.holder_connected else ", not connected")
        rows.append(
            (
                marked(held.resource),
                author(marked(held.held_by), held.held_by_principal),
                shared,
                f"for {duration(held.held_for_seconds)}",
                ends,
                ", ".join(filter(None, (held.agent_name, held.agent_model))),
            )
        )
        rows += _line(lines.pop(held.resource, []))
    for resource, line in lines.items():
        rows += [(marked(resource), "", "", "", "", ""), *_line(line)]
    return table(rows)


def _line(line: Sequence[claims.Waiter]) -> list[tuple[str, ...]]:
    return [
        (
            f"  {number}. in line",
            author(marked(waiter.agent), waiter.principal),
            "shared" if waiter.mode == "shared" else "",
            f"for {duration(waiter.since_seconds)}",
            "" if waiter.present else "away",
            "",
        )
        for number, waiter in enumerate(line, start=1)
    ]


def _agents(board: claims.AgentSessions) -> str:
    heard = ["" if it.idle_seconds is None else f"heard {duration(it.idle_seconds)} ago" for it in board.agents]
    return table(
        [
            (
                author(marked(agent.agent), agent.principal),
                "connected" if agent.connected else "not connected",
                _process(agent),
                agent.folder or "",
                _held_and_wanted(agent),
                ago,
                ", ".join(filter(None, (agent.name, agent.model, agent.purpose))),
            )
            for agent, ago in zip(board.agents, heard, strict=True)
        ]
    )


def _process(agent: claims.SessionPart) -> str:
    is_named = agent.process is None or agent.agent == f"process {agent.process}"
    pid = None if is_named else f"process {agent.process}"
    host = None if agent.host is None else f"from {agent.host}"
    return ", ".join(filter(None, (pid, agent.program, host)))


def _held_and_wanted(agent: claims.SessionPart) -> str:
    held = "1 claim" if agent.claims == 1 else f"{agent.claims} claims"
    return f"{held}, waits for {agent.waits}" if agent.waits else held


def _sentence(result: Result) -> str:
    """One line that begins with the status."""
    status: str = result.body()["status"]
    match result:
        case claims.Released(released=list(released)):
            return f"{status} {', '.join(it.resource for it in released)}"
        case claims.Claimed(resource=resource, version=version):
            also = "".join(f", {it.resource}" for it in result.also or ())
            resumed = result.previous_session_ended_at
            former = f", resumed from a session that ended{_at(resumed)}" if resumed is not None else ""
            return f"{status} {resource}{also} (version {version}){former}{_past_of(result)}"
        case claims.Released(resource=resource, version=version, granted_to=heir):
            heir = heir and author(heir, result.granted_to_principal)
            return f"{status} {resource} (version {version})" + (f"; {heir} has it now" if heir else "")
        case claims.AlreadyFree(held_elsewhere=list(held)):
            return (
                f"{status}: this command holds nothing; other sessions of that name hold {', '.join(map(marked, held))}"
                "\nTo release a claim of an ended session: holdlog release RESOURCE --agent NAME"
                "\nTo take all of them: holdlog release --agent NAME --force --reason TEXT"
            )
        case claims.AlreadyFree(resource=None):
            return f"{status}: nothing was held"
        case claims.AlreadyFree(resource=resource) | claims.Available(resource=resource, previous_holder=None):
            return f"{status} {resource}"
        case _:
            return f"{status}: {_of_claim(result) or _of_value(result) or _fields(result)}"


def _of_claim(result: Result) -> str:
    match result:
        case claims.AlreadyClaimed(resource=resource, version=version, claimed_at=since):
            return f"{resource} is yours since {_clock(since)} (version {version})"
        case claims.Held() | claims.Busy() | claims.WaitTimeout():
            holder = author(marked(result.held_by), result.held_by_principal)
            hold = f"{holder} since {_clock(result.claimed_at)} ({duration(result.held_for_seconds)})"
            return f"{marked(result.resource)} is held by {hold}{_beside(result)}"
        case claims.NotHolder(resource=resource, held_by=None, reason=reason):
            return f"{resource} was taken away: {reason}"
        case claims.NotHolder(resource=resource, held_by=str() as name, reason=reason):
            holder = author(name, result.held_by_principal)
            return f"{resource} is held by {holder}" + (f"; it was taken away: {reason}" if reason else "")
        case claims.Expired(resource=resource, held_by=name):
            holder = author(name, result.held_by_principal) if name else ""
            return f"the claim of {resource} had ended" + (f", and {holder} holds it now" if holder else "")
        case claims.Deadlock(resource=resource, cycle=cycle):
            ring = ", ".join(
                f"{author(it.agent, it.principal)} holds {it.holds} and waits for {it.waits_for}" for it in cycle
            )
            return f"{resource}: {ring}"
        case claims.NeverClaimed(resource=resource):
            return f"{resource} was never claimed"
        case claims.Available(resource=resource):
            return f"{resource}{_past_of(result)}"
        case _:
            return ""


def _beside(hold: claims.Held | claims.Busy | claims.WaitTimeout) -> str:
    """Further details of a hold for those who want the resource."""
    if isinstance(hold, claims.WaitTimeout):
        return ""
    covered = f", who claimed {hold.covered_by}" if hold.covered_by else ""
    note = f": {hold.holder_note}" if hold.holder_note else ""
    waiting = f"; {hold.queue_length} in line" if hold.queue_length else ""
    is_current = hold.current if isinstance(hold, claims.Held) else None
    current = "" if is_current is None else f"; the version that you name is {'' if is_current else 'not '}current"
    return covered + note + waiting + current


def _elsewhere(result: Result) -> str:
    """A line for each other worktree or workspace in which the same path is claimed."""
    match result:
        case claims.Claimed() | claims.AlreadyClaimed() | claims.Available() | claims.Held():
            found = result.also_claimed_in or ()
            return "".join(
                f"\nalso claimed in workspace {it.workspace} by {author(it.held_by, it.held_by_principal)}"
                for it in found
            )
        case _:
            return ""


def _past_of(result: claims.WithPast) -> str:
    """How the last hold ended."""
    if result.previous_holder is None:
        return ""
    end = result.previous_outcome or ""
    ended = {"expired": "expired, of", "forced": "taken from"}.get(end, f"{end} by")
    to = f" to {result.moved_to}" if result.moved_to else ""
    note = f": {result.previous_note}" if result.previous_note else ""
    holder = author(result.previous_holder, result.previous_holder_principal)
    return f" ({ended} {holder}{to}{_at(result.previous_outcome_at)}{note})"


def _of_value(result: Result) -> str:
    match result:
        case responses.NotFound(namespace=namespace, key=key, deleted_by=None):
            return f"{namespace} {key}"
        case responses.NotFound(namespace=namespace, key=key, expires_at=datetime() as at, version=version):
            return f"{namespace} {key} expired{_at(at)} (version {version})"
        case responses.Deleted(namespace=namespace, key=key, expires_at=datetime() as at, version=version):
            return f"{namespace} {key} expired{_at(at)} (version {version})"
        case responses.NotFound(namespace=namespace, key=key, deleted_by=str() as by, deleted_at=at, version=version):
            return f"{namespace} {key} was deleted by {author(by, result.principal)}{_at(at)} (version {version})"
        case responses.Deleted(namespace=namespace, key=key, deleted_by=by, deleted_at=at, version=version):
            return f"{namespace} {key} was deleted by {author(by, result.principal)}{_at(at)} (version {version})"
        case responses.Conflict(namespace=namespace, key=key, actual_version=0, expected_version=expected):
            return f"{namespace} {key} does not exist now, not at version {expected}"
        case responses.Conflict(namespace=namespace, key=key, actual_version=version, expected_version=expected):
            writer = author(result.actual_updated_by or "", result.actual_principal)
            found_version = f"version {version} by {writer}, not {expected}"
            return f"{namespace} {key} is at {found_version}: {short(result.actual_value)}"
        case responses.WatchTimeout(namespace=namespace, key=key, since_version=version):
            return f"{namespace} {key} did not change after version {version}"
        case _:
            return ""


def _fields(result: Result) -> str:
    """The fields of a response that has no sentence."""
    if isinstance(result, responses.Unavailable):
        return result.message
    fields = {name: value for name, value in result.body().items() if name not in ("status", "hint")}
    return ", ".join(f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())


def _escaped(character: str) -> str:
    """Escape a character as in JSON: by UTF-16 unit. A lone surrogate is one unit."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def short(value: object) -> str:
    whole = json.dumps(value, ensure_ascii=False)
    return whole if len(whole) <= WIDEST_VALUE else whole[: WIDEST_VALUE - 1] + "…"


def _past(past: responses.Past) -> str:
    value = "" if past.event_type in ("delete", "expire") else short(past.value)
    return f"{value}  # {past.reason}" if past.reason else value


def moment(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def _clock(time: datetime) -> str:
    """The time, without the date if it is today."""
    return f"{time:%H:%M:%S} UTC" if time.date() == datetime.now(UTC).date() else moment(time)


def _at(time: datetime | None) -> str:
    return "" if time is None else f" at {moment(time)}"


def duration(seconds: float) -> str:
    """A duration in the largest unit that fits, and the next one: a hold may last days."""
    whole = int(seconds)
    for unit, size, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Aligned columns, one line per row; empty without rows."""
    cells = [tuple(printable(cell, kept="") for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )
