"""`holdlog token`: create, list and revoke tokens for callers over HTTP."""

from argparse import SUPPRESS
from typing import Final

from holdlog.adapters.cli.derived import call
from holdlog.adapters.cli.fields import add_fields
from holdlog.adapters.cli.parser import Parser, choose_action, read_duration
from holdlog.adapters.cli.texts import print_note
from holdlog.adapters.operations.tokens import TokenCreate, TokenList, TokenRevoke

ACTIONS: Final = {
    "create": "print a new token, this once",
    "list": "list the tokens, without their texts",
    "revoke": "revoke a token for ever",
}
_EXAMPLES: Final = {
    "create": "token create --name ci --allow 'write:build-*' --allow 'read:*' --expires 30d",
    "list": "token list",
    "revoke": "token revoke ci",
}


def run(words: list[str]) -> int:
    action, rest = choose_action("token", ACTIONS, words)
    text = f"{ACTIONS[action].capitalize()}."
    parser = Parser(f"token {action}", text, (_EXAMPLES[action],))
    if action == "create":
        add_fields(parser, TokenCreate, (), ("ttl_seconds",))
        parser.add_argument(
            "--expires", dest="ttl_seconds", metavar="AGE", type=read_duration, default=SUPPRESS,
            help="for how long it is valid, such as 12h (default: 90d)",
        )  # fmt: skip
        code = call("token", TokenCreate, (), parser.parse_args(rest))
        if not code:
            print_note("servers over HTTP that need no tokens yet do when they are restarted")
        return code
    kind, places = (TokenRevoke, ("token",)) if action == "revoke" else (TokenList, ())
    add_fields(parser, kind, places)
    return call("token", kind, places, parser.parse_args(rest))
