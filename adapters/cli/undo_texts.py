"""Formats differences, authors and reverts for people, in colour on terminals. Texts of agents are escaped before
colours are added."""

import json
import shlex
from argparse import Namespace
from typing import Final

from holdlog.adapters.api.authors import author
from holdlog.adapters.api.changes.responses import Author, Blame, Diff, KeptKeyView, KeyChange, RevertResult, StepView
from holdlog.adapters.api.claims.files import FileBlame
from holdlog.adapters.cli.texts import by_force, is_coloured, marked, moment, positions, printable, short, table
from holdlog.adapters.operating_system.location import without_password

_GREEN, _RED, _YELLOW, _BOLD = "32", "31", "33", "1"
"""ECMA-48."""
_SIGNS: Final = {"add": ("+", _GREEN), "remove": ("-", _RED), "replace": ("~", _YELLOW)}
_COLOURS: Final = {"added": _GREEN, "removed": _RED, "changed": _YELLOW}
_EVENTS: Final = {"write": "written", "delete": "deleted", "expire": "expired"}


def describe_diff(diff: Diff, options: Namespace) -> str:
    lines = [line for change in diff.changes for line in (_change(diff.namespace, change), *_steps(change))]
    if diff.next_after is not None:
        lines.append(f"there is more: add --after {_quoted(diff.next_after)}")
    compared = diff.namespace if options.key is None else f"{diff.namespace}/{options.key}"
    return "\n".join(lines) or f"no difference in {_plain(compared)}"


def describe_blame(blame: Blame | FileBlame, options: Namespace) -> str:
    if isinstance(blame, FileBlame):
        return _describe_changes(blame)
    address, found = f"{_plain(blame.namespace)}/{_plain(blame.key)}", blame.author
    what = "" if blame.missing else ": redacted" if blame.author.redacted else f": {short(blame.value)}"
    lines = [
        f"{_coloured(address, _BOLD)} version {found.version}{_plain(what)}",
        f"  {_EVENTS[found.event_type]} by {_who(found)}, {moment(found.updated_at)}, position {found.position}",
        *(f"  {line}" for line in _facts(found)),
    ]
    if found.session:
        undo = f"holdlog revert --session {found.session} --dry-run{store_option(options.db)}"
        lines.append(_plain(f"  session: {found.session} (to undo it: {undo})"))
    if blame.fields:
        rows = [
            (it.field, f"v{it.version}", _who(it), moment(it.updated_at), "; ".join(_facts(it, brief=True)))
            for it in blame.fields
        ]
        lines += ["", table([("field", "version", "by", "at", ""), *rows])]
    if blame.next_after is not None:
        lines.append(f"there is more: add --after {_quoted(blame.next_after)}")
    if blame.older:
        lines.append(f"changed before version {blame.next_version}: {_plain(', '.join(blame.older))}")
        lines.append(f"to find who did: add --at v{blame.next_version}")
    return "\n".join(lines)


def _describe_changes(blame: FileBlame) -> str:
    """A line for each change of a file."""
    if not blame.changes:
        return f"hooks recorded no change of {_plain(marked(blame.resource))}"
    rows = [
        (
            moment(it.at),
            author(marked(it.agent), it.principal) + (", by a command" if it.by_command else ""),
            f"position {it.position}",
            (it.sha256 or "removed")[:12],
        )
        for it in blame.changes
    ]
    return "\n".join([table(rows), *(["there are older changes: add --limit"] if blame.more else [])])


def describe_revert(result: RevertResult, options: Namespace) -> str:
    did = ("would restore", "would delete", "would keep") if result.dry_run else ("restored", "deleted", "kept")
    lines = []
    for key in result.reverted:
        undone = _versions(*key.undone_versions)
        address = f"{_plain(key.namespace)}/{_plain(key.key)}"
        if key.change == "restored":
            lines.append(f"{_coloured(did[0], _GREEN)} {address} to version {key.restored_version}; undoes {undone}")
        else:
            lines.append(f"{_coloured(did[1], _RED)} {address}; undoes {undone}")
    lines += [
        f"{_coloured(did[2], _YELLOW)} {_plain(key.namespace)}/{_plain(key.key)}: {_why(key)}"
        for key in result.kept_as_is
    ]
    if not lines:
        return "this run wrote no value; holdlog blame NAMESPACE KEY shows the session of a value's last write"
    if not result.reverted:
        return "\n".join([*lines, "nothing would be reverted" if result.dry_run else "nothing was reverted"])
    if result.dry_run:
        return "\n".join([*lines, "nothing was changed; to do it, leave out --dry-run"])
    if result.correlation_id is not None:
        lines.append("files, threads and claims are as they were")
        lines.append(f"to undo this: holdlog revert --correlation {result.correlation_id}{store_option(options.db)}")
    return "\n".join(lines)


def store_option(db: str | None) -> str:
    """`--db` for a command to repeat on the same store; without a password."""
    return "" if db is None else _plain(f" --db {shlex.quote(without_password(db))}")


def _change(namespace: str, change: KeyChange) -> str:
    address = _coloured(f"{_plain(namespace)}/{_plain(change.key)}", _BOLD)
    before = f"v{change.version_before} -> " if change.version_before else ""
    versions = f"{before}v{change.version_after}"
    why = f" (reason: {_plain(change.reason)})" if change.reason else ""
    redacted = " (redacted)" if change.redacted else ""
    who = _plain(author(marked(change.updated_by), change.principal))
    kind = _coloured(change.change, _COLOURS[change.change])
    return f"{address} {kind} {versions} by {who}, {moment(change.updated_at)}{why}{redacted}"


def _steps(change: KeyChange) -> list[str]:
    return [f"  {_step(step)}: {_plain(_values(step))}" for step in change.paths or ()]


def _step(step: StepView) -> str:
    sign, colour = _SIGNS[step.op]
    return _coloured(f"{sign} {_plain(step.path) or 'value'}", colour)


def _values(step: StepView) -> str:
    match step.op:
        case "add":
            return short(step.value)
        case "remove":
            return short(step.previous)
        case _:
            return f"{short(step.previous)} -> {short(step.value)}"


def _facts(found: Author, brief: bool = False) -> list[str]:
    """What a version relied on, and why it was made. `brief`: for a row of a table."""
    facts = []
    if found.redacted:
        facts.append("its value was redacted")
    if found.based_on is not None:
        facts.append(f"based on version {found.based_on}" if found.based_on else "expected no value")
    if found.forced:
        facts.append(by_force(found.operation, found.version))
    if found.guard:
        facts.append(f"relied on {', '.join(f'{marked(it.resource)}@{it.version}' for it in found.guard)}")
    if found.undoes:
        facts.append(f"undoes {positions(*found.undoes)}")
    if found.reason:
        facts.append(f"reason: {found.reason}")
    if not brief and found.correlation_id:
        facts.append(f"correlation id: {found.correlation_id}")
    return list(map(_plain, facts))


def _why(key: KeptKeyView) -> str:
    who = _plain(author(marked(key.by), key.principal)) if key.by else "somebody"
    match key.reason:
        case "changed_since":
            return f"{who} changed it since (version {key.version})"
        case "base_written_by_run":
            return "others wrote it after this run had, and the run wrote it again; --since names a later beginning"
        case "redacted":
            return "a value is redacted"
        case "claimed":
            return f"{who} holds {_plain(marked(key.resource or ''))}"
        case _:
            return "it is as it was"


def _who(found: Author) -> str:
    return _plain(author(marked(found.updated_by), found.principal))


def _versions(first: int, last: int) -> str:
    return f"version {first}" if first == last else f"versions {first} to {last}"


def _quoted(text: str) -> str:
    return _plain(json.dumps(text, ensure_ascii=False))


def _plain(text: str) -> str:
    """Text of agents, escaped before any colours are added."""
    return printable(text, kept="")


def _coloured(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if is_coloured() else text
