"""Runs a command on a store that must exist, and prints its response or what is missing."""

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdlog.adapters.cli.parsers import as_option
from holdlog.adapters.cli.settings import location_of, workspaces_of
from holdlog.domain.refusals import InvalidError, NotFoundError

if TYPE_CHECKING:
    from holdlog.adapters.runtime.engine import Engine

Call = Callable[["Engine", argparse.Namespace], Any]


def run_call(options: argparse.Namespace, names: Mapping[str, str], call: Call, show: Callable[[Any], None]) -> int:
    """Print what `call` returns: with `--json` whole, else by `show`. `names`: of the arguments in errors. Returns the
    exit code: 1 if the store, or what `call` looked for, does not exist, or if something is left to do. Raises
    HoldlogError, LocationError."""
    from holdlog.adapters.api.settings import Settings
    from holdlog.adapters.auth.identity import SessionId
    from holdlog.adapters.cli import texts
    from holdlog.adapters.compose import open_holdlog, process_session, store_exists

    location = location_of(options.db)
    if not store_exists(location):
        return texts.no_store(location)
    settings, session = Settings(workspaces=workspaces_of(options)), SessionId("shell", process_session())
    engine = open_holdlog(location, settings, session, f"holdlog {options.command}", texts.print_note)
    try:
        result = call(engine, options)
    except InvalidError as error:
        raise InvalidError(as_option(str(error), names)) from None
    except NotFoundError as missing:
        if options.json:
            texts.print_json(engine.requests.expected(missing).body())
        else:
            texts.print_note(str(missing))
        return 1
    finally:
        engine.close()
    if options.json:
        texts.print_json(result.body())
    else:
        show(result)
    return 1 if getattr(result, "reverted", None) == [] or getattr(result, "unfinished", None) else 0
