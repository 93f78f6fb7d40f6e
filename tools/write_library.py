"""Write the two classes of the library from the operations: `make generate`."""

import textwrap
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from holdlog.adapters.operations import admin, base, changes, claims, log, past, threads, tokens, transfer, values
from holdlog.domain.refusals import HoldlogError

MODULES = (admin, changes, claims, log, past, threads, tokens, transfer, values)
NAMES = {
    "holdlog.domain.results": "results",
    "holdlog.domain.claims.results": "claim_results",
    "holdlog.domain.threads": "thread_results",
    "holdlog.domain.tokens": "token_results",
    "holdlog.projections.results": "query_results",
    "holdlog.projections.board": "board",
    "holdlog.projections.difference": "difference",
    "holdlog.domain.revert": "revert_results",
}
"""Modules of results, as the written files import them."""
FOLDER = Path(__file__).parents[1] / "adapters" / "python"
HEAD = '''"""The library for threads. Written by `make generate` from the operations; do not edit."""

import builtins
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from holdlog.adapters.operations import {modules}
from holdlog.adapters.python.base import BlockingHandle
from holdlog.adapters.python.calls import NOT_GIVEN
from holdlog.domain import results
from holdlog.domain import revert as revert_results
from holdlog.domain import threads as thread_results
from holdlog.domain import tokens as token_results
from holdlog.domain.claims import results as claim_results
from holdlog.projections import board, difference
from holdlog.projections import results as query_results


class StateStore(BlockingHandle):
    """Versioned JSON values and claims on resources, shared by agents in many processes and kept as a log of events.

    Thread-safe. Closes itself as a context manager.
    Each method raises InvalidError for an invalid argument, UnavailableError if the store cannot handle the call now,
    and StoreError if it is closed.
    """
'''
ASYNC_HEAD = '''"""The library for coroutines. Written by `make generate` from the operations; do not edit."""

from holdlog.adapters.python.base import AwaitableHandle, make_awaitable
from holdlog.adapters.python.store import StateStore


class AsyncStateStore(AwaitableHandle):
    """As StateStore, for coroutines of any event loops: its methods are awaitable."""

'''


def show(kind: Any) -> str:
    """The annotation of an argument, as callers pass it."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return show(arguments[0])
    if origin in (Union, types.UnionType):
        if all(isinstance(argument, type) and issubclass(argument, BaseModel) for argument in arguments):
            return "Mapping[str, Any]"
        return " | ".join(map(show, arguments))
    if origin is list:
        return f"Sequence[{show(arguments[0])}]"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "Mapping[str, Any]"
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    return "None" if kind is type(None) else getattr(kind, "__name__", str(kind))


def show_argument(name: str, field: FieldInfo) -> str:
    kind, name = show(field.annotation), field.alias or name
    if field.is_required():
        return f"{name}: {kind}"
    return f"{name}: {kind} = {'NOT_GIVEN' if kind == 'Any' else repr(field.default)}"


def list_raised(kind: type[HoldlogError]) -> set[Any]:
    """The results that the library raises instead of returning them: details of the refusals of a kind."""
    return {get_type_hints(kind)["detail"]}.union(*map(list_raised, kind.__subclasses__()))


def show_result(operation: type[base.Operation]) -> str:
    """What a method returns."""
    if operation.returns:
        kind = str(operation.results[0].__annotations__[operation.returns])
        for module, name in NAMES.items():
            kind = kind.replace(module, name)
        return "builtins." + kind
    raised = list_raised(HoldlogError)
    return " | ".join(f"{NAMES[kind.__module__]}.{kind.__name__}" for kind in operation.results if kind not in raised)


def write_method(operation: type[base.Operation]) -> str:
    fields = operation.model_fields
    positional = [show_argument(name, fields[name]) for name in operation.positional]
    if operation.computes:
        positional.append("function: Callable[[Any], Any] | None = None")
    named = [show_argument(name, field) for name, field in fields.items() if name not in operation.positional]
    is_command = issubclass(operation, base.Command)
    if is_command or operation.repeats:
        named.append("request_id: str | None = None")
    parameters = ", ".join(["self", *positional, *(["*", *named] if named else [])])
    call = "_run" if is_command else "_wait" if issubclass(operation, base.BlockingQuery) else "_query"
    call = "_do" if issubclass(operation, base.Task) else call
    call = "_update" if operation.computes else "_queue" if operation.waits else call
    expression = f"self.{call}({operation.__module__.rpartition('.')[2]}.{operation.__name__}, locals())"
    doc = textwrap.indent(textwrap.fill(" ".join((operation.__doc__ or "").split()), 108), " " * 8).strip()
    arguments = [f"        {it.alias or name}: {it.description}." for name, it in fields.items() if it.description]
    if arguments:
        doc = "\n".join([doc, "", *arguments, "        "])
    return (
        f"\n    def {operation.name}({parameters}) -> {show_result(operation)}:\n"
        f'        """{doc}"""\n        return {expression}\n'
    )


def write_files() -> dict[Path, str]:
    """The two files, not formatted."""
    operations = [operation for _, operation in sorted(base.OPERATIONS.items())]
    modules = ", ".join(module.__name__.rpartition(".")[2] for module in MODULES)
    names = [f"    {it.name} = make_awaitable(StateStore.{it.name})\n" for it in operations]
    return {
        FOLDER / "store.py": HEAD.format(modules=modules) + "".join(map(write_method, operations)),
        FOLDER / "async_store.py": ASYNC_HEAD + "".join(names),
    }


if __name__ == "__main__":
    for path, text in write_files().items():
        path.write_text(text)
