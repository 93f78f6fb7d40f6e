"""Completions of resource URIs: names that exist now, for people who type them."""

from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Final

from mcp_types import CompleteRequestParams, CompleteResult, Completion, ResourceTemplateReference

from holdlog.adapters.api.pagination import chunks
from holdlog.adapters.api.request import Query
from holdlog.adapters.api.validation import BEGINNING, NAME, text
from holdlog.adapters.mcp.errors import translated
from holdlog.adapters.mcp.resources.addresses import CLAIM, STATE, templates
from holdlog.adapters.mcp.resources.reading import Context, ContextOf
from holdlog.adapters.runtime.request_context import RequestContext
from holdlog.domain.names import claim_stream
from holdlog.domain.ports import Reader

MOST: Final = 100
"""Names per response, by the protocol."""


class Completions:
    """The completion request. Returns names unencoded: the client expands a template with them."""

    def __init__(self, context_of: ContextOf, groups: Sequence[str], prefix: str) -> None:
        self._context_of = context_of
        self._groups = groups
        self._prefix = prefix

    async def complete(self, ctx: Context, params: CompleteRequestParams) -> CompleteResult:
        """Complete an argument. `total` if it is known: with up to 100 names. An unknown argument of a template has no
        names."""
        uri = params.ref.uri if isinstance(params.ref, ResourceTemplateReference) else ""
        if uri not in templates(self._groups):
            return CompleteResult(completion=Completion(values=[], total=0, has_more=False))
        context = self._context_of(ctx)
        given = (params.context.arguments if params.context else None) or {}
        with translated(ctx, uri, context.requests, self._prefix):
            start = text(params.argument.value, params.argument.name, BEGINNING)
            found: list[str] = []
            match params.argument.name:
                case "namespace" if uri == STATE:
                    found = await context.engine.read_async(_namespaces(context, start))
                case "key" if uri == STATE and "namespace" in given:
                    found = await context.engine.read_async(_keys(context, given["namespace"], start))
                case "resource" if uri == CLAIM:
                    found = await _resources(context, start)
                case _:
                    pass
        more = len(found) > MOST
        return CompleteResult(
            completion=Completion(values=found[:MOST], total=None if more else len(found), has_more=more)
        )


def _namespaces(context: RequestContext, start: str) -> Query[list[str]]:
    def answer(reader: Reader) -> list[str]:
        return list(
            islice((it for it in _beginning(reader, start) if context.grants.allows("read-values", it)), MOST + 1)
        )

    return Query(answer, large=True)


def _beginning(reader: Reader, start: str) -> Iterator[str]:
    """Namespaces, by name: first the exact match, then those that it is a prefix of."""
    if start and reader.records(start, "", None, 1, False):
        yield start
    rows = chunks(reader.namespaces, start or None, lambda row: row[0])
    yield from takewhile(lambda name: name.startswith(start), (name for name, _ in rows))


def _keys(context: RequestContext, namespace: str, start: str) -> Query[list[str]]:
    namespace = text(namespace, "namespace", NAME)
    context.grants.require("read-values", namespace)

    def answer(reader: Reader) -> list[str]:
        rows = chunks(
            lambda after, size: reader.records(namespace, start, after, size, False), None, lambda record: record.key
        )
        return [record.key for record in islice(rows, MOST + 1)]

    return Query(answer, large=True)


async def _resources(context: RequestContext, start: str) -> list[str]:
    """Resources that are held or waited for, by the names that this server uses."""
    found: set[str] = set()
    after: str | None = None
    while len(found) <= MOST:
        board = await context.engine.read_async(context.requests.claims.board(after=after))
        names = [*(claim.resource for claim in board.claims), *(queue.resource for queue in board.queues)]
        found |= {name for name in names if name.startswith(start) and context.grants.sees(claim_stream(name))}
        after = board.next_after
        if after is None:
            break
    return sorted(found)
