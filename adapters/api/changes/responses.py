"""Responses about changes: differences, authorship, undo."""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from holdlog.adapters.api.values.responses import FencingConditionView, Part, Result, Time

_LACKS: Final = {"add": "previous", "remove": "value"}


class PointView(Part):
    """A moment: `position` in the log, and the time of it. `version`: of the key, for a difference of one key.
    `clock_suspect`, `may_change`: as in `as_of`."""

    version: int | None = None
    position: int
    at: Time | None = None
    clock_suspect: Literal[True] | None = None
    may_change: Literal[True] | None = None


class StepView(BaseModel):
    """A step as in a JSON Patch (RFC 6902), with the value that it replaces or removes as `previous`. `add` has no
    `previous`, `remove` no `value`."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    op: Literal["add", "remove", "replace"]
    path: str
    value: Any = None
    previous: Any = None

    @model_serializer(mode="wrap")
    def _serialized(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if name != _LACKS.get(self.op)}


class KeyChange(Part):
    """How a key differs. `version_before`: of the earlier value; missing if there was none. `version_after`: of the
    value, or of the deletion or expiry that removed it. `updated_by` and the fields after it are those of
    `version_after`. `paths`: missing if one of the values is redacted."""

    key: str
    change: Literal["added", "removed", "changed"]
    version_before: int | None = None
    version_after: int
    updated_by: str
    principal: str | None = None
    updated_at: Time
    reason: str | None = None
    correlation_id: str | None = None
    redacted: Literal[True] | None = None
    paths: list[StepView] | None = None


class Diff(Result):
    """What differs between two moments; keys without a difference are not listed."""

    status: Literal["ok"] = "ok"
    namespace: str
    before: PointView
    after: PointView
    changes: list[KeyChange]
    next_after: str | None = None


class Author(Part):
    """Who made a version, and what that relied on, as in a history. `session`: shown only to administrators, who can
    undo what it did. `undoes`: first and last position of the events that this one undid. `redacted`: the value was
    removed from the log."""

    version: int
    position: int
    event_type: Literal["write", "delete", "expire"]
    updated_by: str
    principal: str | None = None
    session: str | None = None
    updated_at: Time
    operation: str | None = None
    based_on: int | None = None
    forced: Literal[True] | None = None
    guard: list[FencingConditionView] | None = None
    reason: str | None = None
    correlation_id: str | None = None
    undoes: tuple[int, int] | None = None
    redacted: Literal[True] | None = None


class FieldAuthor(Author):
    """The author of the version that changed a field of an object last. `uncertain`: the version before it is redacted,
    so the field may be older."""

    field: str
    uncertain: Literal[True] | None = None


class Blame(Result):
    """Who made a value, and with `fields` who changed each of its fields last, by name. `missing`: there is no value;
    it was deleted or expired.

    `older`: fields that did not change in the versions that were read; pass `next_version` as `version` for them.
    `next_after`: pass it as `after_field` for more fields."""

    status: Literal["ok"] = "ok"
    namespace: str
    key: str
    value: Any
    missing: Literal[True] | None = None
    author: Author
    fields: list[FieldAuthor] | None = None
    next_after: str | None = None
    older: list[str] | None = None
    next_version: int | None = None

    kept = frozenset({"value"})


class RevertedKey(Part):
    """A key that was restored. `version`: its new one; missing in a dry run. `undone_versions` and `undone_positions`:
    the first and last that were undone. `restored_version`: the version whose value it has again; missing if it was
    deleted."""

    namespace: str
    key: str
    change: Literal["restored", "deleted"]
    version: int | None = None
    undone_versions: tuple[int, int]
    undone_positions: tuple[int, int]
    restored_version: int | None = None


class KeptKeyView(Part):
    """A key that was left as it is. `version`: its newest. `changed_since`: others changed it since (`by`);
    `base_written_by_run`: what would be restored was written on top of an earlier write of the run; `redacted`: a value
    is no longer in the log; `claimed`: `by` holds a claim that concerns it (`resource`); `unchanged`: it is as it
    was."""

    namespace: str
    key: str
    version: int
    reason: Literal["changed_since", "base_written_by_run", "redacted", "claimed", "unchanged"]
    by: str | None = None
    principal: str | None = None
    resource: str | None = None


class RevertResult(Result):
    """What a revert did, or would do (`dry_run`). `correlation_id`: of its events; reverting that undoes it."""

    status: Literal["ok"] = "ok"
    dry_run: Literal[True] | None = None
    correlation_id: str | None = None
    reverted: list[RevertedKey]
    kept_as_is: list[KeptKeyView]
    position: int
    hint: str
