"""Responses about redaction. They never contain a text that was redacted."""

from typing import Final, Literal

from holdlog.adapters.api.values.responses import Part, Result

NOT_RECALLED: Final = (
    "What was read before cannot be recalled: responses, exports, copies and earlier backups, mirrors, consumers of"
    " events, models. If the text is a credential, revoke it where it was issued."
)
"""What `hint` says."""


class RedactedText(Part):
    """A text of an event. `field`: what it is: `value`, `note`, `purpose` or `reason`. The event is named by `id`, and
    by `namespace` and `key`, `resource`, `thread` or `agent`. `already`: it was redacted before."""

    id: str
    position: int
    namespace: str | None = None
    key: str | None = None
    resource: str | None = None
    thread: str | None = None
    agent: str | None = None
    version: int
    field: str
    already: Literal[True] | None = None


class RedactionResult(Result):
    """`position`: of the last event of the log. `also_in`: other texts that contain a redacted text, or a long string
    of it; `more`: only the first ones are listed.

    `rewritten`: backups next to the store that contained it. `remaining`: where it still is; `unfinished`: what could
    not be done yet, and how to do it; one line each."""

    status: Literal["ok"] = "ok"
    redacted: list[RedactedText]
    position: int
    also_in: list[RedactedText]
    more: Literal[True] | None = None
    rewritten: list[str]
    remaining: list[str]
    unfinished: list[str]
    hint: str = NOT_RECALLED
