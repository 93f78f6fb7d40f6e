"""Formats responses for people: a sentence, or a table."""

import json
import shlex
from datetime import datetime
from pathlib import Path
from typing import Final

from holdlog.adapters.api.authors import author
from holdlog.adapters.api.claims import responses as claims
from holdlog.adapters.api.questions.responses import ResourceHistory
from holdlog.adapters.api.values import responses
from holdlog.adapters.api.values.presenter import named
from holdlog.adapters.api.values.responses import Result
from holdlog.adapters.cli.board_texts import describe_agents, describe_board
from holdlog.adapters.cli.dirty import WorktreeFiles, describe_files
from holdlog.adapters.cli.question_texts import describe_history
from holdlog.adapters.cli.texts import (
    by_force,
    clock,
    duration,
    marked,
    moment,
    short,
    short_value,
    since,
    table,
)
from holdlog.adapters.operating_system.location import without_password

_FIRST_CLAIM: Final = "to claim a file: holdlog claim README.md"


def describe(result: Result, location: Path | str, command: str) -> str:
    """The response to `command` for people; `location` is the store's, shown if nothing was found."""
    store = f"the store {without_password(location)}"
    match result:
        case responses.StateRecord(redacted=True) | responses.UpdateResult(redacted=True):
            return "redacted"
        case responses.StateRecord(value=value):
            return json.dumps(value, ensure_ascii=False, indent=2)
        case responses.UpdateResult(value=value):
            return json.dumps(value, ensure_ascii=False, indent=2)
        case responses.TransactionResult(results=parts):
            return table([(it.namespace, it.key, f"v{it.version}", _computed(it)) for it in parts])
        case responses.SetResult(version=version) | responses.DeleteResult(version=version):
            return f"version {version}"
        case responses.RecordList(namespace=namespace, records=records):
            rows = [(it.key, f"v{it.version}", author(it.updated_by, it.principal), short_value(it)) for it in records]
            return table(rows) or f"no values in namespace {namespace} of {store}; to see all namespaces: holdlog list"
        case responses.NamespaceList(namespaces=namespaces):
            counts = [(it.namespace, "1 value" if it.count == 1 else f"{it.count:,} values") for it in namespaces]
            return table(counts) or f"no values in {store}; to write one: holdlog set NAMESPACE KEY VALUE --version 0"
        case responses.History(history=history):
            entries = [
                (f"v{it.version}", it.event_type, author(it.updated_by, it.principal), moment(it.updated_at), _past(it))
                for it in history
            ]
            return table(entries) or f"no versions of this key in {store}; to see what there is: holdlog list"
        case ResourceHistory():
            return describe_history(result)
        case claims.AgentSessions():
            return describe_agents(result) or f"no agent holds or waits for anything in {store}; {_FIRST_CLAIM}"
        case WorktreeFiles():
            return describe_files(result) or "no file of this worktree has uncommitted changes"
        case claims.Board():
            return describe_board(result) or f"nothing is claimed in {store}; {_FIRST_CLAIM}"
        case claims.AlreadyClaimed():
            return _sentence(result) + _elsewhere(result)  # its hint is for agents: each command is a session
        case _:
            advice = _advice(result, command)
            return _sentence(result) + _elsewhere(result) + (f"\n{advice}" if advice else "")


def remark(result: Result, command: str) -> str:
    """An additional note for people; empty for most responses."""
    match result:
        case responses.UpdateResult(version=version):
            return f"version {version}"
        case responses.DeleteResult(deleted_version=version):
            return f"the history keeps the value of version {version}; to remove it there, too: holdlog redact -h"
        case responses.StateRecord(expires_in_seconds=float() as left, expires_at=end):
            return f"expires in {duration(left)}{_at(end)}"
        case claims.Board(next_after=str() as after):
            return f"there is more: holdlog {command} --after {after}"
        case responses.RecordList(namespace=namespace, next_after=str() as after):
            return f"there is more: holdlog list {namespace} --after {after}"
        case responses.NamespaceList(next_after=str() as after):
            return f"there is more: holdlog list --after {after}"
        case responses.History(next_before=int()) | ResourceHistory(more=True):
            return "there is more: --limit N shows the newest N"
        case _:
            return ""


def describe_loss(lost: responses.Lost) -> str:
    """A claim that the session lost since its last command."""
    why = "its lease expired" if lost.why == "expired" else "it was taken from you"
    reason = f": {lost.reason}" if lost.reason else ""
    holder = f"; {author(marked(lost.held_by), lost.held_by_principal)} holds it now" if lost.held_by else ""
    return f"you lost {marked(lost.resource)}: {why}{reason}{holder}"


def _advice(result: Result, command: str) -> str:
    """What to do after a refusal of `command`; empty if there is nothing to do."""
    match result:
        case responses.Conflict(operation=int() as index) | responses.NotFound(operation=int() as index):
            return f"Operation {index} was refused, and nothing changed."
        case responses.Conflict(actual_version=version) if command == "update":
            return f"If your change still applies, repeat the command with --version {version}, or without it."
        case responses.Conflict(actual_version=0) if command == "delete":
            return ""
        case responses.Conflict(namespace=namespace, key=key, actual_version=version) if command == "delete":
            return f"To delete this value: holdlog delete {namespace} {key} --version {version}"
        case responses.Conflict(namespace=namespace, key=key, actual_version=0):
            return f"To create it: holdlog set {namespace} {key} VALUE --version 0"
        case responses.Conflict(namespace=namespace, key=key, actual_version=version):
            return f"Merge your change into this value, then: holdlog set {namespace} {key} VALUE --version {version}"
        case responses.NotFound(namespace=namespace):
            return f"To see which keys have a value: holdlog list {namespace}"
        case responses.WatchTimeout(namespace=namespace, key=key, since_version=version):
            return f"To wait again: holdlog watch {namespace} {key} --since {version}"
        case claims.WaitTimeout(resource=resource):
            name = shlex.quote(resource)
            return f"To wait again: holdlog wait {name}; to queue for it: holdlog claim {name} --wait 30"
        case claims.NeverClaimed() if command == "history":
            return "To see what is claimed: holdlog claims; the versions of a value: holdlog history NAMESPACE KEY"
        case claims.NeverClaimed():
            return "To see what is claimed: holdlog claims"
        case claims.NotHolder(held_by=str(), reason=None):
            name = shlex.quote(result.resource)
            return f"{_hint(result)}\nA person can take it: holdlog release {name} --force --reason TEXT"
        case _:
            return _hint(result)


def _hint(result: Result) -> str:
    """The hint for agents, with the names of the command line."""
    hint = getattr(result, "hint", None) or ""
    return named(hint, "holdlog ").replace("wait_seconds=30", "--wait 30").replace("in guard", "in --guard")


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
            return f"{status} {resource}{also} (version {version}){former}{describe_end(result)}"
        case claims.Released(resource=resource, version=version, granted_to=heir):
            heir = heir and author(heir, result.granted_to_principal)
            return f"{status} {resource} (version {version})" + (
                f"; {heir}, next in the queue, holds it" if heir else ""
            )
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
        case claims.AlreadyClaimed(resource=resource, version=version, claimed_at=at):
            return f"you hold {resource} since {clock(at)} (version {version})"
        case claims.Held() | claims.Busy() | claims.WaitTimeout():
            holder = author(marked(result.held_by), result.held_by_principal)
            hold = f"{holder} {since(result.claimed_at, result.held_for_seconds)}"
            return f"{marked(result.resource)} is held by {hold}{_details(result)}"
        case claims.NotHolder(resource=resource, held_by=None, reason=reason):
            return f"{resource} was taken from you: {reason}"
        case claims.NotHolder(resource=resource, held_by=str() as name, reason=reason):
            holder = author(name, result.held_by_principal)
            return f"{resource} is held by {holder}" + (f"; it was taken from you: {reason}" if reason else "")
        case claims.Expired(resource=resource, held_by=name):
            holder = author(name, result.held_by_principal) if name else ""
            return f"the claim of {resource} expired" + (f", and {holder} holds it now" if holder else "")
        case claims.Deadlock(resource=resource, cycle=cycle):
            links = ", ".join(
                f"{author(it.agent, it.principal)} holds {it.holds} and waits for {it.waits_for}" for it in cycle
            )
            return f"{resource}: {links}"
        case claims.NeverClaimed(resource=resource):
            return f"{resource} was never claimed"
        case claims.Available(resource=resource):
            return f"{resource}{describe_end(result)}"
        case _:
            return ""


def _details(hold: claims.Held | claims.Busy | claims.WaitTimeout) -> str:
    """Further details of a hold for those who want the resource."""
    if isinstance(hold, claims.WaitTimeout):
        return ""
    shared = ", shared" if isinstance(hold, claims.Held) and hold.mode == "shared" else ""
    covered = f", who claimed {hold.covered_by}" if hold.covered_by else ""
    note = f": {hold.holder_note}" if hold.holder_note else ""
    waiting = f"; {hold.queue_length} in the queue" if hold.queue_length else ""
    queue_position = hold.queue_position if isinstance(hold, claims.Busy) else None
    yours = "" if queue_position is None else f", you are number {queue_position}"
    is_current = hold.current if isinstance(hold, claims.Held) else None
    current = "" if is_current is None else f"; this version is {'' if is_current else 'not '}current"
    return shared + covered + note + waiting + yours + current


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


def describe_end(result: claims.WithPast) -> str:
    """How the last hold ended."""
    if result.previous_holder is None:
        return ""
    holder = author(result.previous_holder, result.previous_holder_principal)
    end = result.previous_outcome or ""
    ended = {"expired": f"claim of {holder} expired", "forced": f"taken from {holder}"}.get(end, f"{end} by {holder}")
    to = f" to {result.moved_to}" if result.moved_to else ""
    note = f": {result.previous_note}" if result.previous_note else ""
    return f" ({ended}{to}{_at(result.previous_outcome_at)}{note})"


def _of_value(result: Result) -> str:
    match result:
        case responses.NotFound(namespace=namespace, key=key, deleted_by=None):
            return f"{namespace}/{key} has no value"
        case responses.NotFound(namespace=namespace, key=key, expires_at=datetime() as at, version=version):
            return f"{namespace}/{key} expired{_at(at)} (version {version})"
        case responses.Deleted(namespace=namespace, key=key, expires_at=datetime() as at, version=version):
            return f"{namespace}/{key} expired{_at(at)} (version {version})"
        case responses.NotFound(namespace=namespace, key=key, deleted_by=str() as by, deleted_at=at, version=version):
            return f"{namespace}/{key} was deleted by {author(by, result.principal)}{_at(at)} (version {version})"
        case responses.Deleted(namespace=namespace, key=key, deleted_by=by, deleted_at=at, version=version):
            return f"{namespace}/{key} was deleted by {author(by, result.principal)}{_at(at)} (version {version})"
        case responses.Conflict(namespace=namespace, key=key, actual_version=0, expected_version=expected):
            return f"{namespace}/{key} has no value now, so it is not at version {expected}"
        case responses.Conflict(namespace=namespace, key=key, actual_version=version, expected_version=expected):
            writer = author(result.actual_updated_by or "", result.actual_principal)
            found_version = f"version {version} by {writer}, not {expected}"
            actual = "redacted" if result.redacted else short(result.actual_value)
            return f"{namespace}/{key} is at {found_version}: {actual}"
        case responses.WatchTimeout(namespace=namespace, key=key, since_version=version):
            return f"{namespace}/{key} did not change after version {version}"
        case responses.Fenced(resource=resource, version=version, held_by=name):
            holder = author(name, result.held_by_principal) if name else ""
            return f"you do not hold {resource} at version {version}" + (f"; {holder} holds it now" if holder else "")
        case _:
            return ""


def _computed(part: responses.TransactionPart) -> str:
    return short_value(part) if "value" in part.model_fields_set else ""


def _fields(result: Result) -> str:
    """The fields of a response that has no sentence."""
    if isinstance(result, responses.Unavailable | responses.Failed):
        return result.message
    fields = {name: value for name, value in result.body().items() if name not in ("status", "hint")}
    return ", ".join(f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())


def _past(past: responses.Past) -> str:
    value = "" if past.event_type in ("delete", "expire") else short_value(past)
    forced = f"({by_force(past.operation, past.version)})" if past.forced else ""
    reason = f"# {past.reason}" if past.reason else ""
    return "  ".join(filter(None, (value, forced, reason)))


def _at(time: datetime | None) -> str:
    return "" if time is None else f" at {moment(time)}"
