"""The store of a command, and who calls it."""

import getpass
import os
import secrets
from argparse import Namespace
from contextlib import suppress

from holdlog.adapters.cli.settings import find_place
from holdlog.adapters.cli.texts import NEXT_STEP, print_note
from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.conversations import list_candidates, require_session, require_text
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.operating_system.files import is_missing
from holdlog.adapters.operating_system.location import is_url, mask_password, prepare_folder, read_variable
from holdlog.adapters.operating_system.processes import identify_host, identify_process
from holdlog.adapters.operating_system.workspaces import Workspaces, find_workspaces
from holdlog.domain.moment import Caller
from holdlog.domain.refusals import NoStoreError


class MissingStoreError(NoStoreError):
    """There is no store yet. The message says what to do next."""

    def __init__(self, place: str, exit_code: int) -> None:
        super().__init__(f"there is no store at {mask_password(place)} yet; {NEXT_STEP}")
        self.exit_code = exit_code


def has_store(place: str) -> bool:
    return place == ":memory:" or is_url(place) or not is_missing(place)


def is_named(options: Namespace) -> bool:
    """Whether the user named the store."""
    return options.db is not None or read_variable("db") is not None


def open_to_read(options: Namespace, is_list: bool = False) -> Engine:
    """Open the store for a command that only reads. If it is missing and the user named none, a command that `is_list`
    gets an empty store with --json, and exits with 0 otherwise. Raises MissingStoreError, StoreError,
    UnavailableError."""
    place = find_place(options.db)
    if has_store(place):
        return open_engine(place, creates=False)
    is_new = is_list and not is_named(options)
    if is_new and getattr(options, "json", False):
        return open_engine(":memory:")
    raise MissingStoreError(place, 0 if is_new else 1)


def open_to_write(options: Namespace) -> Engine:
    """Open the store for a command that may create it. If --db names a new store, print a note: the name may be
    mistyped. Raises StoreError, UnavailableError."""
    place = find_place(options.db)
    is_new = not has_store(place)
    prepare_folder(place, os.environ)
    engine = open_engine(place)
    if is_new and options.db is not None:
        print_note(f"created the store {place}")
    return engine


def find_names(options: Namespace) -> Workspaces:
    """The workspaces, which turn names of files into resources. Raises InvalidError, StoreError."""
    named = read_variable("workspace")
    return find_workspaces(os.environ, os.getcwd(), find_place(options.db), named.split(",") if named else ())


def find_caller(
    options: Namespace, engine: Engine, has_own_session: bool = False, is_person: bool = False
) -> tuple[Caller, str]:
    """The caller, and the name of its agent. The session is the first that is present: --session; HOLDLOG_SESSION; the
    conversation whose agent runs this command, unless the caller `is_person`; this process, if it `has_own_session`;
    the terminal, unless several conversations may share it; the parent process. Raises InvalidError."""
    get = vars(options).get
    session = get("caller_session") or os.environ.get("HOLDLOG_SESSION")
    session = require_session(session, "--session") if session else None
    correlation = get("caller_correlation") or os.environ.get("HOLDLOG_CORRELATION")
    host, agent = identify_host(), find_user()
    candidates = [] if session is not None or is_person else list_candidates(engine.store, host)
    if len(candidates) == 1:
        session = candidates[0].session
        agent = os.environ.get("HOLDLOG_AGENT") or candidates[0].name
    texts = {"--request-id": get("caller_request_id"), "--correlation": correlation}
    request_id, correlation_id = (require_text(name, text) if text else None for name, text in texts.items())
    session = session or _find_session(has_own_session, len(candidates) > 1)
    return Caller(session, None, request_id, correlation_id, host), agent


def find_user() -> str:
    """The agent in HOLDLOG_AGENT, or else the name of the user."""
    try:
        return os.environ.get("HOLDLOG_AGENT") or getpass.getuser()
    except (OSError, KeyError):
        return "somebody"


def _find_session(has_own_session: bool, is_unclear: bool) -> str:
    leader = os.getpid() if has_own_session else os.getppid()
    if not has_own_session and not is_unclear:  # else two conversations may share the terminal
        with suppress(OSError):  # there is no terminal
            os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
            leader = os.getsid(0)
    return identify_process(leader) or secrets.token_hex(8)
