"""`holdlog token`: create, list, revoke and rotate the tokens of a store."""

import argparse
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdlog.adapters.cli.commands import add_by
from holdlog.adapters.cli.existing_store import location_to_read, open_engine, require_store
from holdlog.adapters.cli.parsers import Commands, add_action, duration_of
from holdlog.domain.refusals import HoldlogError, InvalidError, StoreError, UnavailableError

if TYPE_CHECKING:
    from holdlog.adapters.runtime.engine import Engine
    from holdlog.domain.token import TokenChanged, TokenCommand

DEFAULT_LIFETIME: Final = "90d"
_STAYS_OPEN: Final = "a server that already runs without tokens stays open to everybody until it is restarted"
_EXAMPLES: Final = """\
examples:
  holdlog token create --name ci --allow 'write:build-*' --allow 'read:*' --expires 30d
  holdlog token create --name ci --allow 'claim:src/*' --out ~/.holdlog-token
  holdlog token list
  holdlog token rotate ci --overlap 1h
  holdlog token revoke ci

Scopes: read and write (which includes read) cover values, claims and threads; read-values, read-claims, read-threads,
write-values, write-threads and claim cover one kind; metrics:* reads the metrics; admin allows everything. In a
pattern only * is special. docs/tokens.md describes scopes and patterns.
"""
_CREATE: Final = """\
examples:
  holdlog token create --name ci --allow 'write:build-*' --allow 'read:*' --expires 30d
  export HOLDLOG_TOKEN=$(holdlog token create --name ann --allow 'admin:*' --expires never)
"""


def add_token(commands: Commands, store: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "token",
        help="create, list, revoke and rotate tokens for HTTP",
        description="Create, list, revoke and rotate the tokens with which agents and scripts call over HTTP. The store"
        " keeps only their hashes.",
        epilog=_EXAMPLES,
    )
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)

    def add(
        name: str, help_text: str, run: Callable[[argparse.Namespace], int], epilog: str
    ) -> argparse.ArgumentParser:
        action = add_action(actions, store, name, help_text, epilog)
        action.add_argument("--json", action="store_true", help="print the response as JSON (default: text)")
        action.set_defaults(run=run)
        return action

    create = add("create", "create a token and print it once, alone on standard output", _create, _CREATE)
    create.add_argument("--name", required=True, help="1 to 64 of a-z, 0-9 and -; the log shows it")
    create.add_argument(
        "--allow",
        action="append",
        required=True,
        metavar="SCOPE:PATTERN",
        help="what the token allows, one grant per option; repeatable",
    )
    expires_help = f"it expires after this time, for example 30d, 12h, 90m, or never (default: {DEFAULT_LIFETIME})"
    create.add_argument(
        "--expires", type=_lifetime, default=_lifetime(DEFAULT_LIFETIME), metavar="TIME", help=expires_help
    )
    create.add_argument("--space", metavar="NAME", help="allow only this space (default: the main store)")

    add("list", "list the tokens, without their secrets", _list, "example:\n  holdlog token list --json")

    revoke = add("revoke", "revoke a token permanently", _revoke, "example:\n  holdlog token revoke ci")
    rotate = add(
        "rotate",
        "give a token a new secret and print it",
        _rotate,
        "example:\n  holdlog token rotate ci --overlap 1h",
    )
    rotate.add_argument(
        "--overlap",
        type=duration_of,
        default=0.0,
        metavar="TIME",
        help="the old secret stays valid for this time, for example 1h (default: 0s)",
    )
    for action in (revoke, rotate):
        action.add_argument("name", metavar="NAME", help="the name of the token")
    for action in (create, rotate):
        action.add_argument(
            "--out",
            type=_file,
            metavar="FILE",
            help="write the secret to this new file, which only you can read (default: print it)",
        )
    for action in (create, revoke, rotate):
        add_by(action, "who does it, for the log")


def _create(options: argparse.Namespace) -> int:
    from holdlog.adapters.api.validation import checked
    from holdlog.adapters.auth.tokens import fresh
    from holdlog.adapters.cli.token_texts import is_local_name
    from holdlog.domain.token import IssueToken

    if is_local_name(options.name):
        raise InvalidError(
            f"--name: {options.name} is your user name, which tokens must not use; choose another one, for example"
            f" {options.name}-laptop"
        )
    made = fresh(options.name)
    fields = {"name": options.name, "allow": tuple(options.allow), "space": options.space, "by": options.by}
    command = _named_here(
        lambda: checked(lambda: IssueToken(hash=made.hash, lifetime_seconds=options.expires, **fields), by="by")
    )

    def describe(changed: "TokenChanged") -> str:
        from holdlog.adapters.cli.token_texts import moment_of

        token = changed.token
        end = f"expires {moment_of(token.expires_at)}" if token.expires_at is not None else "never expires"
        where = f" in the space {token.space}" if token.space else ""
        secret = "copy it now, it will not be shown again" if options.out is None else f"its secret is in {options.out}"
        return f"token {token.name} allows {', '.join(token.allow)}{where} and {end}; {secret}; {_STAYS_OPEN}"

    return _with_secret(options, command, made.text, describe)


def _rotate(options: argparse.Namespace) -> int:
    from holdlog.adapters.api.validation import checked
    from holdlog.adapters.auth.tokens import fresh
    from holdlog.domain.token import RotateToken

    made = fresh(options.name)
    fields = {"name": options.name, "overlap_seconds": options.overlap, "by": options.by}
    command = _named_here(lambda: checked(lambda: RotateToken(hash=made.hash, **fields), by="by"))

    def describe(changed: "TokenChanged") -> str:
        from holdlog.adapters.cli.token_texts import moment_of

        until = changed.token.previous_until
        old = f"is valid until {moment_of(until)}" if options.overlap else "is no longer valid"
        shown = "will not be shown again" if options.out is None else f"is in {options.out}"
        return f"token {options.name} has a new secret, which {shown}; the old one {old}"

    return _with_secret(options, command, made.text, describe, must_exist=True)


def _revoke(options: argparse.Namespace) -> int:
    from holdlog.adapters.api.validation import checked
    from holdlog.adapters.cli.texts import print_json
    from holdlog.adapters.cli.token_texts import moment_of, time_of
    from holdlog.domain.token import RevokeToken

    command = _named_here(lambda: checked(lambda: RevokeToken(name=options.name, by=options.by), by="by"))
    changed = _changed(options, command, must_exist=True)
    if not isinstance(changed, tuple):
        return changed
    if options.json:
        print_json({"name": options.name, "revoked_at": time_of(changed.token.revoked_at), "already": changed.already})
    else:
        when = f"was revoked {moment_of(changed.token.revoked_at)}" if changed.already else "is revoked"
        print(f"token {options.name} {when}")
    return 0


def _list(options: argparse.Namespace) -> int:
    from holdlog.adapters.cli import texts
    from holdlog.adapters.cli.store import stored_location
    from holdlog.adapters.cli.token_texts import described, row

    stored_location(options.db)  # refuses a store in memory
    with open_engine(options, location_to_read(options, is_list=True)) as engine, engine.store.reader() as reader:
        tokens, now = reader.tokens(None, -1), reader.at
    if options.json:
        texts.print_json({"tokens": [described(token, now) for token in tokens]})
    else:
        print(
            texts.table([row(token, now) for token in tokens])
            or "there are no tokens; to create one: holdlog token create --name ci --allow 'read:*'"
        )
    return 0


def _with_secret(
    options: argparse.Namespace,
    command: "TokenCommand",
    text: str,
    describe: Callable[["TokenChanged"], str],
    must_exist: bool = False,
) -> int:
    from holdlog.adapters.cli import texts
    from holdlog.adapters.cli.token_texts import described
    from holdlog.adapters.operating_system.secrets import write_secret

    out: Path | None = options.out
    if out is not None:
        write_secret(out, text, "--out")  # before the token is created: on a full disk its secret would be lost
    try:
        changed = _changed(options, command, must_exist)
    except HoldlogError as error:
        if out is not None and not (isinstance(error, UnavailableError) and error.in_doubt):
            out.unlink(missing_ok=True)
        raise
    if not isinstance(changed, tuple):
        if out is not None:
            out.unlink(missing_ok=True)
        return changed
    if out is None and _output_is_readable_by_others():
        texts.print_note("other users can read the file on standard output; chmod 600 it, or use --out FILE next time")
    if options.json:
        secret = {"token": text} if out is None else {"out": str(out)}
        texts.print_json({**secret, **described(changed.token, changed.token.issued_at)})
        return 0
    if out is None:
        print(text, flush=True)
    texts.print_note(describe(changed))
    return 0


def _output_is_readable_by_others() -> bool:
    from holdlog.adapters.operating_system.secrets import is_readable_by_others

    try:
        return is_readable_by_others(os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # it is not a system file
        return False


def _changed(options: argparse.Namespace, command: "TokenCommand", must_exist: bool) -> "TokenChanged | int":
    """Change a token. Returns the result, or the exit code if there is no store or the change was refused."""
    from holdlog.adapters.cli import texts
    from holdlog.adapters.cli.store import stored_location
    from holdlog.adapters.compose import open_holdlog

    location = stored_location(options.db)
    if must_exist:
        require_store(location)
    engine: Engine = open_holdlog(location, what="holdlog token", report=texts.print_note)
    try:
        return engine.change_token(command, engine.caller)
    except (StoreError, UnavailableError):
        raise
    except HoldlogError as refusal:
        texts.print_note(str(refusal).removeprefix("name: "))
        return 1
    finally:
        engine.close()


def _named_here(make: "Callable[[], TokenCommand]") -> "TokenCommand":
    """Build the command; errors name its arguments as on the command line."""
    try:
        return make()
    except InvalidError as error:
        raise InvalidError(re.sub(r"^(allow|space|by|overlap)(_seconds)?(\[\d+\])?: ", r"--\1: ", str(error))) from None


def _file(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise argparse.ArgumentTypeError("names no home folder; write the path out without ~") from None


def _lifetime(text: str) -> float | None:
    return None if text == "never" else duration_of(text, least=1)
