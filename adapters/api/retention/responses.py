"""Responses about retention."""

from typing import Literal

from holdlog.adapters.api.values.responses import Part, Result


class NamespaceRetention(Part):
    """How long former values of a namespace are kept."""

    namespace: str
    seconds: int


class RetentionList(Result):
    """The namespaces whose former values are removed; of all others they are kept."""

    status: Literal["ok"] = "ok"
    retention: list[NamespaceRetention]


class RetentionRun(Result):
    """`removed`: former values. `unfinished`: as in a redaction."""

    status: Literal["ok"] = "ok"
    removed: int
    unfinished: list[str]


class RetentionResult(Result):
    """The retention of a namespace. `seconds` None: its former values are kept. `already`: it was so before."""

    status: Literal["ok"] = "ok"
    namespace: str
    seconds: int | None
    already: bool
    position: int

    kept = frozenset({"seconds"})
