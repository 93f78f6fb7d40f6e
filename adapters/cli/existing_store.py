"""Opens the store of a command, which must exist, and prints a response from it."""

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdlog.adapters.cli.parsers import as_option
from holdlog.adapters.cli.settings import location_of, named_location, workspaces_of
from holdlog.domain.refusals import InvalidError, NotFoundError

if TYPE_CHECKING:
    from holdlog.adapters.runtime.engine import Engine

Call = Callable[["Engine", argparse.Namespace], Any]


class NoStoreError(Exception):
    """There is no store; the text says what to do next. `code`: the exit code."""

    def __init__(self, location: Path | str, code: int = 1) -> None:
        from holdlog.adapters.cli.texts import NEXT_STEP
        from holdlog.adapters.operating_system.location import without_password

        super().__init__(f"there is no store at {without_password(location)} yet; {NEXT_STEP}")
        self.code = code


def require_store(location: Path | str) -> None:
    """Raise NoStoreError if there is no store."""
    from holdlog.adapters.compose import store_exists

    if not store_exists(location):
        raise NoStoreError(location)


def existing_location(options: argparse.Namespace) -> Path | str:
    """The store of a command. Raises NoStoreError, LocationError, InvalidError."""
    location = location_of(options.db)
    require_store(location)
    return location


def location_to_read(options: argparse.Namespace, is_list: bool = False) -> Path | str:
    """The store of a command that only reads, and need not find anything. If the user named none, its absence is not
    a failure; `is_list`: then `--json` gets an empty list from memory. Raises NoStoreError, LocationError."""
    from holdlog.adapters.compose import MEMORY, store_exists

    location = location_of(options.db)
    if store_exists(location):
        return location
    may_be_new = named_location(options.db) is None
    if is_list and may_be_new and options.json:
        return MEMORY
    raise NoStoreError(location, code=0 if may_be_new else 1)


@contextmanager
def open_engine(
    options: argparse.Namespace, location: Path | str, names: Mapping[str, str] | None = None
) -> "Iterator[Engine]":
    """The store of a command, while the block runs. `names`: of the arguments in its errors. Raises HoldlogError,
    LocationError."""
    from holdlog.adapters.api.settings import Settings
    from holdlog.adapters.auth.identity import SessionId
    from holdlog.adapters.cli.texts import print_note
    from holdlog.adapters.compose import open_holdlog, process_session

    settings = Settings(workspaces=workspaces_of(options) if "workspace" in options else None)
    session = SessionId("shell", process_session())
    engine = open_holdlog(location, settings, session, f"holdlog {options.command}", print_note)
    try:
        yield engine
    except InvalidError as error:
        raise InvalidError(as_option(str(error), names or {})) from None
    finally:
        engine.close()


def run_call(options: argparse.Namespace, names: Mapping[str, str], call: Call, show: Callable[[Any], None]) -> int:
    """Print what `call` returns: with `--json` whole, else by `show`. `names`: of the arguments in errors. Returns the
    exit code: 1 if what `call` looked for does not exist, or if something is left to do. Raises HoldlogError,
    LocationError, NoStoreError."""
    from holdlog.adapters.cli.texts import print_json, print_note

    with open_engine(options, existing_location(options), names) as engine:
        try:
            result = call(engine, options)
        except NotFoundError as missing:
            if options.json:
                print_json(engine.requests.expected(missing).body())
            else:
                print_note(f"{missing}{_advice(options)}")
            return 1
    if options.json:
        print_json(result.body())
    else:
        show(result)
    is_left = getattr(result, "reverted", None) == [] or getattr(result, "unfinished", None)
    return 1 if is_left or getattr(result, "status", None) == "not_found" else 0


def _advice(options: argparse.Namespace) -> str:
    """What to do about a value that does not exist; empty if the command looked for something else."""
    from holdlog.adapters.cli.undo_texts import store_option

    if not isinstance(getattr(options, "key", None), str):
        return ""
    namespace = shlex.quote(options.name if options.command == "timeline" else options.namespace)
    moment = f"at {shlex.quote(options.moment)} " if options.command == "at" else ""
    return f"; to see which keys have a value: holdlog {moment}list {namespace}{store_option(options.db)}"
