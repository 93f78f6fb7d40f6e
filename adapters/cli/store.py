"""The store of a command, and who calls it."""

import getpass
import os
import secrets
from argparse import Namespace
from contextlib import suppress

from holdlog.adapters.cli.settings import find_place
from holdlog.adapters.cli.texts import NEXT_STEP, print_note
from holdlog.adapters.compose import open_engine
from holdlog.adapters.engine.conversations import list_candidates
from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.operating_system.files import is_missing
from holdlog.adapters.operating_system.location import is_url, mask_password, prepare_folder, read_variable
from holdlog.adapters.operating_system.processes import identify_host, identify_process
from holdlog.adapters.operating_system.workspaces import Workspaces, find_workspaces
from holdlog.domain.moment import Caller
from holdlog.domain.names import check_label
from holdlog.domain.refusals import InvalidError, NoStoreError


class MissingStoreError(NoStoreError):
    """The text says what to do next."""

    def __init__(self, place: str, exit_code: int) -> None:
        super().__init__(f"there is no store at {mask_password(place)} yet; {NEXT_STEP}")
        self.exit_code = exit_code


def has_store(place: str) -> bool:
    return place == ":memory:" or is_url(place) or not is_missing(place)


def is_named(options: Namespace) -> bool:
    """Whether the user named the store."""
    return options.db is not None or read_variable("db") is not None


def open_to_read(options: Namespace, is_list: bool = False) -> Engine:
    """The store of a command that only reads. A list of a new project is empty. Raises MissingStoreError, StoreError,
    UnavailableError."""
    place = find_place(options.db)
    if has_store(place):
        return open_engine(place, creates=False)
    is_new = is_list and not is_named(options)
    if is_new and getattr(options, "json", False):
        return open_engine(":memory:")
    raise MissingStoreError(place, 0 if is_new else 1)


def open_to_write(options: Namespace, notes_new: bool = True) -> Engine:
    """The store of a command, which may create it. A note says so if --db names it: it may be mistyped. Raises
    StoreError, UnavailableError."""
    place = find_place(options.db)
    is_new = not has_store(place)
    if place != ":memory:" and not is_url(place):
        prepare_folder(place, os.environ)
    engine = open_engine(place)
    if is_new and notes_new and options.db is not None:
        print_note(f"created the store {place}")
    return engine


def find_names(options: Namespace) -> Workspaces:
    """What turns names of files into resources here. Raises InvalidError, StoreError."""
    named = read_variable("workspace")
    return find_workspaces(os.environ, os.getcwd(), find_place(options.db), named.split(",") if named else ())


def find_caller(
    options: Namespace, engine: Engine, is_alone: bool = False, is_person: bool = False
) -> tuple[Caller, str]:
    """Who calls: a session, and the name of an agent. The session is that of --session, HOLDLOG_SESSION, the
    conversation whose agent runs this, unless the caller `is_person`, the terminal or the parent process, if that
    conversation may be one of several; of this process, if it `is_alone`. Raises InvalidError."""
    get = vars(options).get
    session = _read_label("session", get("caller_session") or os.environ.get("HOLDLOG_SESSION"))
    correlation = get("caller_correlation") or os.environ.get("HOLDLOG_CORRELATION")
    host, agent = identify_host(), find_user()
    candidates = [] if session is not None or is_person else list_candidates(engine.store, host)
    if len(candidates) == 1:
        session = candidates[0].session
        agent = os.environ.get("HOLDLOG_AGENT") or candidates[0].name
    labels = _read_label("request-id", get("caller_request_id")), _read_label("correlation", correlation)
    return Caller(session or _find_session(is_alone, len(candidates) > 1), None, *labels, host), agent


def find_user() -> str:
    """The agent that the environment names, or else the user."""
    try:
        return os.environ.get("HOLDLOG_AGENT") or getpass.getuser()
    except (OSError, KeyError):
        return "somebody"


def _find_session(is_alone: bool, is_unclear: bool) -> str:
    leader = os.getpid() if is_alone else os.getppid()
    if not is_alone and not is_unclear:  # else two conversations may share the terminal
        with suppress(OSError):  # without one
            os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
            leader = os.getsid(0)
    return identify_process(leader) or secrets.token_hex(8)


def _read_label(name: str, text: str | None) -> str | None:
    try:
        return check_label(text) if text else None
    except ValueError as error:
        raise InvalidError(f"--{name}: {error}") from None
