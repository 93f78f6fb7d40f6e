"""`holdlog thread`: append to a conversation of agents, or read it."""

from argparse import SUPPRESS
from typing import Final

from holdlog.adapters.cli.derived import add_caller, call
from holdlog.adapters.cli.fields import add_fields, read_steps
from holdlog.adapters.cli.parser import Parser, choose_action
from holdlog.adapters.operations.threads import ThreadAppend, ThreadRead

ACTIONS: Final = {"read": "print messages and results", "append": "add messages and results"}


def run(words: list[str]) -> int:
    action, rest = choose_action("thread", ACTIONS, words)
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
