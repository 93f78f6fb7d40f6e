"""Sealed stores: no version of holdlog ever appends to one again (docs/decisions/0021-copy-and-seal.md).

Triggers refuse events and new leases and skip renewals, so that an unsealed store has no extra cost. A row in `meta`
makes this version refuse every command.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdlog.adapters.operating_system.location import shown
from holdlog.domain.ports import Transaction
from holdlog.domain.refusals import StoreError
from holdlog.domain.times import utc

SEAL: Final = "sealed"
"""Name of the row in `meta`."""
SEALED_STATE: Final = "P0S01"
"""SQLSTATE of PostgreSQL's refusals, in the class of PL/pgSQL's own errors, so that no driver mistakes it for a lost
connection."""
LOCK_TIMEOUT: Final = 10.0
"""Seconds to wait for another writer."""


class Seal(NamedTuple):
    """A store's seal. `at`: when, microseconds UTC; `steady`: the same moment on the clock of leases, which stops then.

    `to`: where the store moves, without passwords. `given`: the store at `to` has its id, so no other copy gets it.
    `done`: the move is complete.
    """

    at: int
    steady: int
    to: str
    given: bool = False
    done: bool = False

    @property
    def line(self) -> str:
        return f"the store was sealed on {utc(self.at):%Y-%m-%d at %H:%M:%S} UTC and moved to {self.to}; use it there"

    @property
    def text(self) -> str:
        return json.dumps(self._asdict())


def is_same(one: str, other: str) -> bool:
    """Whether two names denote one location, ignoring the user."""
    return _USER.sub(r"\1", one) == _USER.sub(r"\1", other)


_USER: Final = re.compile("^(postgresql://)[^@/?]*@")


def seal_of(text: str | None) -> Seal | None:
    """Parse the row of `meta`."""
    return None if text is None else Seal(**json.loads(text))


def line_of(text: str | None) -> str | None:
    found = seal_of(text)
    return None if found is None else found.line


CreateTriggers = Callable[[Any, str], None]
"""Creates the triggers, which refuse with a given line, in a transaction of the store."""


def seal(transaction: Transaction, to: str, create_triggers: CreateTriggers) -> Seal:
    """Seal the store, which moves to `to`. A sealed store stays sealed; the caller may name another target until the id
    is given.

    Raises StoreError if the id was given to another store.
    """
    found = seal_of(transaction.meta(SEAL))
    if found is not None and found.given and not is_same(found.to, to):
        raise elsewhere(found)
    sealed = found._replace(to=to) if found is not None else Seal(transaction.at, transaction.steady, shown(to))
    if sealed != found:
        create_triggers(transaction, sealed.line)
        transaction.put_meta(SEAL, sealed.text)
    return sealed


def give(transaction: Transaction, to: str, create_triggers: CreateTriggers, done: bool) -> None:
    """Give the id of a sealed store to the one at `to`. Raises StoreError if another store has it."""
    sealed = seal(transaction, to, create_triggers)
    transaction.put_meta(SEAL, sealed._replace(given=True, done=sealed.done or done).text)


def elsewhere(found: Seal) -> StoreError:
    return StoreError(
        f"this store moved to {found.to} and its id moved with it; copy without --seal to create a store with a new id"
    )


FILE_TRIGGERS: Final = ("sealed_events", "sealed_leases", "sealed_renewals")


def file_triggers(line: str) -> tuple[str, ...]:
    """The triggers for SQLite. They skip renewals instead of refusing them, because renewals recur and a reboot also
    updates leases."""
    quoted = line.replace("'", "''")
    refuse = f"BEGIN SELECT RAISE(ABORT, '{quoted}'); END"
    return (
        *(f"DROP TRIGGER IF EXISTS {name}" for name in FILE_TRIGGERS),
        f"CREATE TRIGGER sealed_events BEFORE INSERT ON stored_events {refuse}",
        f"CREATE TRIGGER sealed_leases BEFORE INSERT ON leases {refuse}",
        "CREATE TRIGGER sealed_renewals BEFORE UPDATE ON leases BEGIN SELECT RAISE(IGNORE); END",
    )


def schema_triggers(literal: str) -> tuple[str, ...]:
    """The triggers for PostgreSQL; `literal`: the line, quoted."""
    refuse = f"FOR EACH ROW EXECUTE FUNCTION holdlog_sealed({literal})"
    return (
        f"""CREATE OR REPLACE FUNCTION holdlog_sealed() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION USING ERRCODE = '{SEALED_STATE}', MESSAGE = TG_ARGV[0]; END $$""",
        """CREATE OR REPLACE FUNCTION holdlog_not_renewed() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RETURN NULL; END $$""",
        "DROP TRIGGER IF EXISTS sealed_events ON stored_events",
        "DROP TRIGGER IF EXISTS sealed_leases ON leases",
        "DROP TRIGGER IF EXISTS sealed_renewals ON leases",
        f"CREATE TRIGGER sealed_events BEFORE INSERT ON stored_events {refuse}",
        f"CREATE TRIGGER sealed_leases BEFORE INSERT ON leases {refuse}",
        "CREATE TRIGGER sealed_renewals BEFORE UPDATE ON leases FOR EACH ROW EXECUTE FUNCTION holdlog_not_renewed()",
    )
