"""`holdlog update` and `holdlog transact`: changes that the store computes, and several at once."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.cli.commands import Add, add_address, add_author, guards, value_of, write

if TYPE_CHECKING:
    from holdlog.adapters.api.values.responses import Result
    from holdlog.adapters.runtime.engine import Engine

_OF_UPDATE: Final = """\
examples:
  holdlog update stats visits --increment 1
  holdlog update campaign channels --append '"radio"' --unique
  holdlog update campaign plan --merge '{"owner": "ann", "draft": null}'
  holdlog update campaign plan --patch '[{"op": "replace", "path": "/owner", "value": "bob"}]'
"""
_OF_TRANSACT: Final = """\
An operation is an object with op, namespace and key, and:
  set        value, expected_version, ttl_seconds
  delete     expected_version
  check      expected_version: changes nothing, but all is refused if it differs
  merge      value: a JSON merge patch (RFC 7396)
  increment  by: a number
  append     value, unique: only if the list lacks it
  patch      patch: a JSON patch (RFC 6902)
All but check accept expected_version; without it any version is replaced.

examples:
  holdlog transact move.json
  holdlog transact move.json --reason 'refund of order 7' --json

with move.json:
  [{"op": "increment", "namespace": "bank", "key": "ann", "by": -5},
   {"op": "increment", "namespace": "bank", "key": "bob", "by": 5}]
"""


def add_updates(add: Add) -> None:
    update = add("update", "change a value where it is stored, without reading it first", _update)
    add_address(update)
    which = update.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--increment", type=_json, metavar="NUMBER", default=..., help="add this to the number; a missing key is 0"
    )
    which.add_argument(
        "--append",
        type=value_of,
        metavar="VALUE",
        default=...,
        help="add this to the end of the list; a missing key is an empty list. JSON, else text",
    )
    which.add_argument(
        "--merge", type=_json, metavar="JSON", default=..., help="apply this JSON merge patch (RFC 7396)"
    )
    which.add_argument("--patch", type=_json, metavar="JSON", default=..., help="apply this JSON patch (RFC 6902)")
    update.add_argument("--unique", action="store_true", help="with --append: only if the list lacks an equal item")
    update.add_argument("--version", type=int, metavar="N", help="only if the value has this version (default: any)")
    add_author(update)
    update.epilog = _OF_UPDATE

    transact = add("transact", "run several operations in one transaction: all or none", _transact)
    transact.add_argument("operations", metavar="FILE", help="a JSON list of operations; - reads standard input")
    add_author(transact)
    transact.epilog = _OF_TRANSACT


def _update(engine: "Engine", options: argparse.Namespace) -> "Result":
    call = engine.requests.transactions.update(
        options.namespace,
        options.key,
        options.by,
        options.version,
        guards(options),
        merge=options.merge,
        patch=options.patch,
        increment=options.increment,
        append=options.append,
        unique=options.unique,
    )
    return write(engine, call, options)


def _transact(engine: "Engine", options: argparse.Namespace) -> "Result":
    call = engine.requests.transactions.transact(_operations(options.operations), options.by, guards(options))
    return write(engine, call, options)


def _operations(file: str) -> Any:
    """The content of a JSON file, or of standard input. Raises InvalidError."""
    from holdlog.domain.refusals import InvalidError

    try:
        return json.loads(sys.stdin.read() if file == "-" else Path(file).read_text("utf-8"))
    except OSError as error:
        raise InvalidError(f"FILE: cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidError("FILE: is not UTF-8") from None
    except (ValueError, RecursionError):
        raise InvalidError("FILE: is not valid JSON") from None


def _json(given: str) -> Any:
    text = sys.stdin.read() if given == "-" else given
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise argparse.ArgumentTypeError("is not valid JSON") from None
