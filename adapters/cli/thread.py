"""`holdlog thread`: lists threads; shows the messages and results of one, its data and their history."""

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from holdlog.adapters.cli.existing_store import existing_location, location_to_read, open_engine
from holdlog.adapters.cli.parsers import Commands, add_action
from holdlog.adapters.cli.settings import one_or_more
from holdlog.domain.refusals import NotFoundError

if TYPE_CHECKING:
    from holdlog.adapters.api.threads.responses import ThreadData
    from holdlog.adapters.runtime.engine import Engine
    from holdlog.domain.ports import Reader

SHOWN: Final = 50
"""Default number of messages and results, or changes."""

Body = dict[str, Any]
Ask = Callable[["Engine", argparse.Namespace], Body]

_EXAMPLES: Final = """\
examples:
  holdlog thread list
  holdlog thread read run-7 --limit 10
  holdlog thread read run-7 --after 57 --json
  holdlog thread data run-7
  holdlog thread data run-7 plan
  holdlog thread history run-7 plan

To follow all threads: holdlog log --follow --kinds thread. docs/threads.md describes threads.
"""
_NAMES_HERE: Final = {
    "thread_id": "ID",
    "key": "KEY",
    "after_version": "--after",
}
"""The names of the arguments of calls on this command line."""


def add_thread(commands: Commands, store: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "thread",
        help="list and read threads: the messages, results and data of a run",
        description="Read the messages and results of agents in one run, and the data that they share.",
        epilog=_EXAMPLES,
    )
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)

    def add(name: str, help_text: str, ask: Ask, example: str) -> argparse.ArgumentParser:
        action = add_action(actions, store, name, help_text, f"example:\n  holdlog thread {example}")
        action.add_argument("--json", action="store_true", help="print the whole response as JSON (default: text)")
        action.set_defaults(run=lambda options: _run(ask, options))
        return action

    listing = add("list", "list threads by id", _list, "list --after run-7")
    listing.add_argument(
        "--after", metavar="ID", help="only ids after this one: the next page (default: from the start)"
    )
    listing.add_argument("--limit", type=one_or_more, default=1000, metavar="N", help="show at most N (default: 1000)")
    read = add("read", "print the messages and results of a thread, oldest first", _read, "read run-7 --limit 10")
    past = "show the last N messages and results; with --after the first N"
    read.add_argument("--after", type=int, metavar="VERSION", help="only what follows this version (default: all)")
    read.add_argument("--limit", type=one_or_more, default=SHOWN, metavar="N", help=f"{past} (default: {SHOWN})")
    data = add("data", "print the data of a thread, or the value of one key", _data, "data run-7 plan")
    history = add("history", "list the changes of one key, newest first", _history, "history run-7 plan")
    newest = f"show the newest N (default: {SHOWN})"
    history.add_argument("--limit", type=one_or_more, default=SHOWN, metavar="N", help=newest)
    for action in (read, data, history):
        action.add_argument("id", metavar="ID", help="the id of the thread")
    data.add_argument("key", nargs="?", metavar="KEY", help="only this key (default: all)")
    history.add_argument("key", metavar="KEY", help="the key")


def _run(ask: Ask, options: argparse.Namespace) -> int:
    """Run the command. Raises HoldlogError for a bad argument and for a store that cannot be read."""
    from holdlog.adapters.cli import texts, thread_texts

    is_list = options.action == "list"
    location = location_to_read(options, is_list=True) if is_list else existing_location(options)
    with open_engine(options, location, _NAMES_HERE) as engine:
        try:
            body = ask(engine, options)
        except NotFoundError as missing:
            if options.json:
                texts.print_json(engine.requests.expected(missing).body())
            else:
                texts.print_note(_what_to_do(missing))
            return 1
    if options.json:
        texts.print_json(body)
        return 0
    print(thread_texts.describe(options.action, body, texts.is_coloured()))
    if sys.stdout.isatty() and (more := _more(body)):  # for people; programs use --json
        texts.print_note(more)
    return 0


def _what_to_do(missing: NotFoundError) -> str:
    """Advice for a missing thread or key: look for another name, or in another store."""
    thread = missing.facts["thread_id"]
    if "key" in missing.facts:
        return f"{missing}; to see all keys: holdlog thread data {thread}"
    return f"there is no thread {thread}; to see all: holdlog thread list (use --db for another store)"


def _more(body: Body) -> str:
    """A note that there is more, and how to see it; empty if there is not."""
    if "next_before" in body:
        shown = "there is more before this: use --limit N"
        return shown if "history" in body else shown + ", or --after 0 to read from the beginning"
    return f"there is more: use --after {body['next_after']}" if "next_after" in body else ""


def _list(engine: "Engine", options: argparse.Namespace) -> Body:
    return engine.read(engine.requests.threads.listed(options.limit, options.after)).body()


def _read(engine: "Engine", options: argparse.Namespace) -> Body:
    return engine.read(engine.requests.threads.page(options.id, options.limit, options.after)).body()


def _data(engine: "Engine", options: argparse.Namespace) -> Body:
    from holdlog.adapters.api.request import Query

    if options.key is not None:
        return engine.read(engine.requests.thread_data.get(options.id, options.key)).body()

    def whole(reader: "Reader") -> "ThreadData":
        """Read all pages of one snapshot."""
        page = engine.requests.thread_data.page(options.id).answer(reader)
        while page.next_after is not None:
            following = engine.requests.thread_data.page(options.id, page.next_after).answer(reader)
            redacted = [*(page.redacted or ()), *(following.redacted or ())] or None
            page = following.model_copy(update={"data": page.data | following.data, "redacted": redacted})
        return page

    return engine.read(Query(whole, large=True)).body()


def _history(engine: "Engine", options: argparse.Namespace) -> Body:
    from holdlog.adapters.api.request import Query
    from holdlog.adapters.api.threads.presenter import key_missing
    from holdlog.adapters.api.validation import NAME, text
    from holdlog.adapters.cli.thread_texts import past
    from holdlog.domain.threads.thread import require_started

    thread, key = text(options.id, "thread_id", NAME), text(options.key, "key", NAME)

    def answer(reader: "Reader") -> list[Body]:
        require_started(reader.thread(thread))
        changes = reader.thread_events(thread, ("data",), 0, None, options.limit + 1, newest=True, key=key)
        return [past(it, key) for it in changes]

    found = engine.read(Query(answer, large=True))
    if not found:
        raise key_missing(thread, key)
    body: Body = {"status": "ok", "thread_id": thread, "key": key, "history": found[: options.limit]}
    return body if len(found) <= options.limit else body | {"next_before": found[options.limit - 1]["version"]}
