"""`holdlog hook`: what hosts run before an edit. Without options it never comes here (holdlog/__main__.py)."""

import argparse
import os

from holdlog.adapters.cli.parsers import Commands
from holdlog.adapters.hooks.calls import EVENTS

_EXAMPLES = """\
examples:
  holdlog hook                what hosts run; it reads the host's JSON on standard input
  echo '{"session_id": "s-1", "paths": ["src/a.py"]}' | holdlog hook pre-edit
"""


def add_hook(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command; `run` of its namespace returns the exit code. `shared` provides `--db`."""
    parser = commands.add_parser(
        "hook",
        parents=[shared],
        help="claim files as agents edit them: for the hooks of Claude Code, Codex, Cursor and others",
        description="Claim files as agents edit them. A host runs it with its JSON on standard input.\n"
        "If anything fails, the edit is allowed. Exit code: always 0.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "event",
        nargs="?",
        choices=EVENTS,
        metavar="EVENT",
        help=f"what happens, if the JSON does not name it: {', '.join(EVENTS)} (default: hook_event_name of the JSON)",
    )
    parser.add_argument(
        "--url", metavar="URL", help="pass the JSON to this server, by POST /hook (default: use the store)"
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="with --url: read its token from this file (default: HOLDLOG_TOKEN)"
    )
    parser.set_defaults(run=run_hook)


def run_hook(options: argparse.Namespace) -> int:
    """Run `holdlog hook`."""
    from holdlog.adapters.hooks.running import run

    if options.url is not None:
        from holdlog.adapters.hooks.posting import run_posting

        file = ["--token-file", options.token_file] if options.token_file else []
        return run_posting(["--url", options.url, *file, *([options.event] if options.event else [])])
    if options.db is not None:
        os.environ["HOLDLOG_DB"] = options.db
    return run([options.event] if options.event else [])
