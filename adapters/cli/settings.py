"""`holdlog serve`, and the settings of servers and commands: options, and variables HOLDLOG_… of the environment."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

from holdlog import __version__
from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.operating_system.location import find_store, mask_password, read_variable
from holdlog.domain.refusals import InvalidError

LARGEST_VALUE: Final = 16 * 1024 * 1024
"""Bytes; every reader of a key gets the whole value."""
_EXAMPLES: Final = (
    "serve --tools claims,state",
    "serve --transport http --port 8420",
    "serve --db 'postgresql://ann@db.example/team' --nats nats://127.0.0.1:4222",
)


class Settings(NamedTuple):
    """What a server runs with. `db`: the place of its store, found. Times are in seconds, sizes in bytes."""

    db: str
    session: str | None = None
    tools: tuple[str, ...] = ("claims",)
    tool_prefix: str = "holdlog_"
    workspace: tuple[str, ...] = ()
    lease_seconds: float = 300.0
    idle_limit: float = 1800.0
    max_wait: float = 50.0
    max_value_bytes: int = 256 * 1024
    transport: str = "stdio"
    host: str = "127.0.0.1"
    port: int = 8420
    path: str = "/mcp"
    allowed_host: tuple[str, ...] = ()
    nats: str | None = None
    open_tokens: int = 0
    space_bytes: int = 1_000_000
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwt_jwks_url: str | None = None


class Rule(NamedTuple):
    """What the text of a setting must be: `must be …`."""

    metavar: str
    text: str
    read: Callable[[str], Any]
    is_good: Callable[[Any], bool]
    help: str

    def parse(self, text: str) -> Any:
        """Raises ValueError, whose message is for the user."""
        try:
            value = self.read(text)
        except ValueError:
            value = None
        if value is None or not self.is_good(value):
            raise ValueError(f"must be {self.text}")
        return value


def _seconds(least: float, most: float, help_text: str) -> Rule:
    return Rule("SECONDS", f"{least:g} to {most:g} seconds", float, lambda it: least <= it <= most, help_text)


def _number(least: int, most: int, help_text: str, metavar: str = "N") -> Rule:
    return Rule(metavar, f"a whole number from {least} to {most}", int, lambda it: least <= it <= most, help_text)


def _text(metavar: str, help_text: str) -> Rule:
    return Rule(metavar, "a text", str, lambda it: True, help_text)


def _split(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _words(metavar: str, help_text: str) -> Rule:
    return Rule(metavar, "a text", _split, bool, help_text)


def _are_hosts(names: tuple[str, ...]) -> bool:
    return bool(names) and all(re.fullmatch(r"[\w.-]+(:\d+)?|\[[0-9a-fA-F:]+\](:\d+)?", name) for name in names)


RULES: Final = {
    "session": _text("ID", "the session of all calls, as _meta would name it"),
    "tools": _words("GROUPS", "groups of tools, separated by commas: claims, state, power, threads, kv, all"),
    "tool_prefix": _text("TEXT", "the first part of all tool names"),
    "workspace": _words("NAME=PATH", "a folder whose paths are file://NAME/…; repeatable"),
    "lease_seconds": _seconds(1, 10**9, "how long a silent holder keeps its claims, where no process beats for it"),
    "idle_limit": _seconds(1, 10**9, "a server beats for holders whose last call is not longer ago"),
    "max_wait": _seconds(0.001, 3600, "the longest wait of a tool: hosts cut calls off"),
    "max_value_bytes": _number(1, LARGEST_VALUE, "the size of a value as JSON", "BYTES"),
    "transport": Rule("KIND", "stdio or http", str.lower, ("stdio", "http").__contains__, "stdio, or http"),
    "host": _text("ADDRESS", "the address to listen on, with --transport http"),
    "port": _number(0, 65_535, "the port to listen on, with --transport http", "PORT"),
    "path": Rule(
        "PATH", "a path such as /mcp", str, lambda it: it.rstrip("/").startswith("/"), "where MCP is, over HTTP"
    ),
    "allowed_host": Rule(
        "HOST",
        "a name such as holdlog.example",
        _split,
        _are_hosts,
        "another name of this server, over HTTP; repeatable",
    ),
    "nats": _text("URL", "publish the log to NATS, such as nats://127.0.0.1:4222"),
    "open_tokens": _number(0, 10**9, "let callers over HTTP create this many tokens, each with a space"),
    "space_bytes": _number(0, 2**62, "the values of each such space", "BYTES"),
    "jwt_issuer": _text("URL", "accept the JSON Web Tokens of this issuer, over HTTP"),
    "jwt_audience": _text("TEXT", "for whom these tokens must be"),
    "jwt_jwks_url": _text("URL", "where the issuer publishes its keys"),
}
"""All settings but `db`."""
REPEATABLE: Final = ("workspace", "allowed_host")
OVER_HTTP: Final = ("host", "port", "path", "allowed_host", "open_tokens", "jwt_issuer", "jwt_audience", "jwt_jwks_url")


def name_option(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def read_settings(options: Mapping[str, Any]) -> Settings:
    """Those of the options, which are texts, else of the environment. Raises InvalidError, which names the option or
    variable, and StoreError."""
    values = dict[str, Any]()
    for setting, rule in RULES.items():
        named, text = name_option(setting), options.get(setting)
        if isinstance(text, list):
            text = ",".join(text)
        if text is None:
            named, text = f"HOLDLOG_{setting.upper()}", read_variable(setting)
        if text is not None:
            try:
                values[setting] = rule.parse(text)
            except ValueError as error:
                raise InvalidError(f"{named}: {error}") from None
    return Settings(find_place(options.get("db")), **values)


def find_place(db: str | None) -> str:
    """The place of the store that an option, the environment or the working folder names. Raises InvalidError,
    StoreError."""
    return find_store(db if db is not None else read_variable("db"), os.environ, os.getcwd())


def serve(words: list[str]) -> int:
    """Serve MCP over standard input and output, or over HTTP."""
    parser = Parser(
        "serve",
        "Serve MCP over stdio, or MCP and the REST API over HTTP. holdlog without a command does the same."
        " Each option is also an environment variable, for example HOLDLOG_TOOLS or HOLDLOG_DB.",
        _EXAMPLES,
        has_json=False,
    )
    parser.add_argument("--version", action="version", version=f"holdlog {__version__}", help="print the version")
    defaults = Settings._field_defaults
    for setting, rule in RULES.items():
        default = defaults[setting]
        text = ",".join(default) if isinstance(default, tuple) else default
        shown = "" if text in ("", None) else f" (default: {text})"
        action = "append" if setting in REPEATABLE else "store"
        parser.add_argument(name_option(setting), metavar=rule.metavar, action=action, help=f"{rule.help}{shown}")
    options = vars(parser.parse_args(words))
    settings = read_settings(options)
    if settings.transport == "stdio":
        if lone := next((name for name in OVER_HTTP if options[name] is not None), None):
            raise InvalidError(f"{name_option(lone)}: needs --transport http")
        if sys.stdin.isatty():
            _greet(settings.db)
    module = "mcp.stdio" if settings.transport == "stdio" else "http.server"
    return int(import_module(f"holdlog.adapters.{module}").serve(settings) or 0)


def _greet(place: str) -> None:
    """Help a user who typed `holdlog` in a terminal: what it does, and what they may have wanted."""
    print(
        f"holdlog serves MCP on this terminal, with the store {mask_password(place)}. Ctrl-C stops it.\n"
        "MCP hosts start this server themselves. In a terminal, try:\n"
        "  holdlog demo      see what it does, in ten seconds\n"
        "  holdlog claims    list claims and queues\n"
        "  holdlog --help    list all commands",
        file=sys.stderr,
        flush=True,
    )
