"""`holdlog thread` and `holdlog token`, each with several actions: conversations of agents, and tokens of callers."""

from argparse import SUPPRESS
from contextlib import closing
from typing import Final

from holdlog.adapters.cli.derived import add_caller, call
from holdlog.adapters.cli.fields import add_fields, read_steps
from holdlog.adapters.cli.parser import Parser, choose_action, read_duration
from holdlog.adapters.cli.store import open_to_read
from holdlog.adapters.cli.texts import print_note
from holdlog.adapters.operations.threads import ThreadAppend, ThreadRead
from holdlog.adapters.operations.tokens import TokenCreate, TokenList, TokenRevoke

_OF_THREAD: Final = {"read": "print messages and results", "append": "add messages and results"}
_OF_TOKEN: Final = {
    "create": "print a new token, this once",
    "list": "list the tokens, without their texts",
    "revoke": "revoke a token for ever",
}
_EXAMPLES: Final = {
    "create": "token create --name ci --allow 'write:build-*' --allow 'read:*' --expires 30d",
    "list": "token list",
    "revoke": "token revoke ci",
}


def run_thread(words: list[str]) -> int:
    action, rest = choose_action("thread", _OF_THREAD, words)
    return _append(rest) if action == "append" else _read(rest)


def _read(words: list[str]) -> int:
    parser = Parser("thread read", "Print messages and results of a thread, in order.", ("thread read run-7",))
    add_fields(parser, ThreadRead, ("thread_id",))
    return call("thread", ThreadRead, ("thread_id",), parser.parse_args(words))


def _append(words: list[str]) -> int:
    examples = ("thread append run-7 'which file?'", "thread append run-7 --results results.json --agent writer")
    parser = Parser("thread append", "Append messages, then results of agents, to a thread.", examples)
    add_fields(parser, ThreadAppend, ("thread_id",), ("messages", "new_results"))
    parser.add_argument("text", nargs="?", metavar="TEXT", help="a message")
    parser.add_argument("--role", choices=("user", "assistant", "system"), default="user", help="of TEXT")
    for name, dest in (("messages", "messages"), ("results", "new_results")):
        help_text = f"a list of {name}, as JSON; - is standard input"
        parser.add_argument(f"--{name}", dest=dest, metavar="FILE", type=read_steps, default=SUPPRESS, help=help_text)
    add_caller(parser)
    options = parser.parse_args(words)
    if options.text is not None:
        text = {"type": "text", "role": options.role, "content": options.text}
        options.messages = [text, *getattr(options, "messages", ())]
    return call("thread", ThreadAppend, ("thread_id",), options)


def run_token(words: list[str]) -> int:
    action, rest = choose_action("token", _OF_TOKEN, words)
    text = f"{_OF_TOKEN[action].capitalize()}."
    parser = Parser(f"token {action}", text, (_EXAMPLES[action],))
    if action == "create":
        add_fields(parser, TokenCreate, (), ("ttl_seconds",))
        parser.add_argument(
            "--expires", dest="ttl_seconds", metavar="AGE", type=read_duration, default=SUPPRESS,
            help="for how long it is valid, such as 12h (default: 90d)",
        )  # fmt: skip
        options = parser.parse_args(rest)
        code = call("token", TokenCreate, (), options)
        if code:
            return code
        with closing(open_to_read(options)) as engine:
            if len(engine.query(TokenList(limit=2)).tokens) == 1:
                print_note("a server over HTTP that was started without tokens asks for none until it is restarted")
        return 0
    kind, places = (TokenRevoke, ("token",)) if action == "revoke" else (TokenList, ())
    add_fields(parser, kind, places)
    return call("token", kind, places, parser.parse_args(rest))
