"""The tables of the read models, in a SQLite file, and their statements."""

from typing import Final

VERSION: Final = 2
"""A file of another version is emptied, and filled again from the log."""

_TABLES: Final = {
    "activity": "agent TEXT, principal TEXT, hour INTEGER, topic TEXT, times INTEGER NOT NULL,"
    " PRIMARY KEY (hour, agent, principal, topic)",
    "holds": "resource TEXT, version INTEGER, agent TEXT NOT NULL, principal TEXT, session TEXT, mode TEXT NOT NULL,"
    " PRIMARY KEY (resource, version)",
    "tickets": "resource TEXT, version INTEGER, agent TEXT NOT NULL, principal TEXT, session TEXT, mode TEXT NOT NULL,"
    " turn INTEGER NOT NULL, PRIMARY KEY (resource, version)",
    "collisions": "queue TEXT, ticket INTEGER, resource TEXT, agent TEXT NOT NULL, principal TEXT, behind TEXT,"
    " behind_principal TEXT, at INTEGER NOT NULL, ended_at INTEGER, granted INTEGER,"
    " PRIMARY KEY (queue, ticket, resource, behind, behind_principal)",
    "reached": "one INTEGER PRIMARY KEY, digest BLOB NOT NULL",
}
CREATE: Final = [f"CREATE TABLE IF NOT EXISTS {name} ({columns}) WITHOUT ROWID" for name, columns in _TABLES.items()]
DROP: Final = [f"DROP TABLE IF EXISTS {name}" for name in _TABLES]

NO_PRINCIPAL: Final = ""
"""In the place of a principal: key columns of WITHOUT ROWID tables cannot be null."""

FORGET_POSITIONS: Final = "DELETE FROM tracking WHERE application_name <> ?"
READ_VERSION: Final = "PRAGMA user_version"
SET_VERSION: Final = f"PRAGMA user_version = {VERSION}"
SELECT_REACHED: Final = "SELECT digest FROM reached"
PUT_REACHED: Final = "INSERT OR REPLACE INTO reached VALUES (1, ?)"

COUNT: Final = (
    "INSERT INTO activity VALUES (?, ?, ?, ?, 1) ON CONFLICT (hour, agent, principal, topic)"
    " DO UPDATE SET times = times + 1"
)
_IS_OF_AGENT: Final = "{0} = :agent OR substr({0}, 1, length(:agent) + 1) = :agent || '/'"
"""Whether a column names the agent or a sub-agent."""
SELECT_ACTIVITY: Final = (
    "SELECT hour, agent, principal, topic, times FROM activity WHERE hour BETWEEN :first AND :last"
    f" AND (:agent IS NULL OR {_IS_OF_AGENT.format('agent')})"
    " ORDER BY hour DESC, agent, principal, topic"
)

PUT_HOLD: Final = "INSERT INTO holds VALUES (?, ?, ?, ?, ?, ?)"
PUT_TICKET: Final = "INSERT INTO tickets VALUES (?, ?, ?, ?, ?, ?, ?)"
END_HOLD: Final = "DELETE FROM holds WHERE resource = ? AND version = ?"
END_HOLDS: Final = "DELETE FROM holds WHERE resource = ?"
END_TICKET: Final = "DELETE FROM tickets WHERE resource = ? AND version = ?"
PUT_COLLISION: Final = "INSERT INTO collisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)"
END_COLLISIONS: Final = "UPDATE collisions SET ended_at = ?, granted = ? WHERE queue = ? AND ticket = ?"
_OVERLAPS: Final = (
    "instr(:covers, char(10) || {0} || char(10)) > 0"
    " OR substr(:resource, -1) = '/' AND substr({0}, 1, length(:resource)) = :resource"
)
"""`:covers`: the names that cover the resource, each between two line feeds, which no name contains."""
SELECT_COLLISIONS: Final = (
    "SELECT resource, agent, principal, behind, behind_principal, COUNT(*) AS times,"
    " COALESCE(SUM(granted), 0) AS granted, COALESCE(SUM(ended_at - at), 0) AS waited, MAX(at) AS last"
    " FROM collisions WHERE at BETWEEN :since AND :until"
    f" AND (:resource IS NULL OR {_OVERLAPS.format('resource')} OR {_OVERLAPS.format('queue')})"
    f" AND (:agent IS NULL OR {_IS_OF_AGENT.format('agent')} OR {_IS_OF_AGENT.format('behind')})"
    " GROUP BY resource, agent, principal, behind, behind_principal"
    " ORDER BY times DESC, last DESC, resource, agent, behind LIMIT :limit"
)


def select_named(table: str, count: int) -> str:
    return f"SELECT * FROM {table} WHERE resource IN ({', '.join('?' * count)})"


def select_below(table: str) -> str:
    return f"SELECT * FROM {table} WHERE resource > ? AND resource < ?"
