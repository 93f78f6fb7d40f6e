"""Which session a file belongs to: the one that holds it, or else the one that changed it last."""

import json
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operating_system.processes import is_alive
from holdlog.adapters.stores import sql
from holdlog.adapters.stores.board import read_board
from holdlog.domain.claims.claim import Claim
from holdlog.domain.claims.holder import HolderId
from holdlog.domain.claims.resource import list_covering
from holdlog.domain.moment import SECOND
from holdlog.domain.names import end_of_range, is_of_agent
from holdlog.domain.state import Reads

MAX_BELOW: Final = 10_000
"""Changes that are read below a folder."""


class FileWork(NamedTuple):
    """A file that a session holds, or changed last. `seconds`: for how long it has held it, or since that change.
    `is_live`: whether that session still works. `at`, `sha256`: time of the last change, in seconds since 1970, and the
    content then, None if the file was removed."""

    resource: str
    who: HolderId
    seconds: float
    holds: bool
    is_live: bool
    at: float = 0.0
    sha256: str | None = None


class Ownership:
    """Who holds and changed what in a store at one moment, seen by an agent. `host`: the program that runs it."""

    def __init__(self, reader: Reader, who: HolderId, host: str | None = None) -> None:
        self.who = who
        self._reader = reader
        self.now = reader.now()
        board = read_board(reader, Reads(claims="all"))
        self._claims: dict[str, list[Claim]] = {}
        for claim in board.claims.values():
            if not claim.is_ticket and board.find_claim_end(claim) > board.now:
                self._claims.setdefault(claim.resource, []).append(claim)
        self._left = {it.who for it in board.holders.values() if it.is_left_to(who, host)}
        self._hosts = {holder.who: holder.host for holder in board.holders.values()}
        rows = reader.read(sql.CONVERSATION_HOSTS, {})
        self._conversations = {session: host for session, host, _ in rows}
        self._former = {session for session, host, has_ended in rows if has_ended and host == who.session}

    def is_own(self, who: HolderId, holds: bool = False) -> bool:
        """Whether work of this holder is the agent's own: what its session changed, also under an earlier id or by
        sub-agents. If it `holds` the file, only what the agent itself, or an agent above it, holds."""
        if who in self._left or (who.session in self._former and who.principal == self.who.principal):
            return True
        return who[1:] == self.who[1:] and (is_of_agent(self.who.agent, who.agent) or not holds)

    def is_live(self, session: str) -> bool:
        """Whether a conversation is live: neither it nor its host is known to have ended."""
        host = self._conversations.get(session)
        return host is not None and is_alive(self._conversations.get(host, host)) is not False

    def find_own(self, resources: Iterable[str]) -> dict[str, FileWork]:
        """Which of these files the agent's session holds or changed last."""
        files = list(resources)
        changes = self.read_changes(files)
        works = {}
        for resource in files:
            claim = next((it for it in self._list_claims(resource) if self.is_own(it.who, holds=True)), None)
            change = changes.get(resource)
            if change is not None and self.is_own(change.who):
                works[resource] = change._replace(holds=claim is not None)
            elif claim is not None:
                works[resource] = self._describe(claim)
        return works

    def find_others(self, resources: Iterable[str]) -> dict[str, list[FileWork]]:
        """The work of others in these resources, if there is any; for a folder, of all files below it."""
        names = list(resources)
        changes = self.read_changes([name for name in names if not name.endswith("/")])
        works = {
            name: list(self._find_below(name) if name.endswith("/") else self._find(name, changes.get(name)))
            for name in names
        }
        return {name: others for name, others in works.items() if others}

    def list_held(self) -> Iterator[FileWork]:
        """All files that others hold."""
        for claims in self._claims.values():
            yield from (self._describe(claim) for claim in claims if not self.is_own(claim.who, holds=True))

    def _find(self, name: str, change: FileWork | None) -> Iterator[FileWork]:
        claim = next((it for it in self._list_claims(name) if not self.is_own(it.who, holds=True)), None)
        if claim is not None:
            yield self._describe(claim)._replace(resource=name)
        elif change is not None and self._is_of_others(change):
            yield change

    def _find_below(self, folder: str) -> Iterator[FileWork]:
        yield from self._find(folder, None)
        held = [work for work in self.list_held() if work.resource.startswith(folder) and work.resource != folder]
        yield from held
        range_of = {"first": f"claim:{folder}", "end": end_of_range(f"claim:{folder}"), "limit": MAX_BELOW}
        changes = {row[0]: row for row in self._reader.read(sql.FILE_CHANGES_BELOW, range_of)}
        for change in map(self._decode, changes.values()):
            if self._is_of_others(change) and change.resource not in {work.resource for work in held}:
                yield change

    def _is_of_others(self, change: FileWork) -> bool:
        """Whether a change is the work of others. A change of a file that the agent already held is not, if another
        agent's program made it: the agent continues with that file, and could not commit it otherwise."""
        claims = [it for it in self._list_claims(change.resource) if it.since / SECOND <= change.at]
        is_within = any(it.mode == "exclusive" and self.is_own(it.who, holds=True) for it in claims)
        return not (is_within or self.is_own(change.who))

    def _list_claims(self, name: str) -> Iterator[Claim]:
        for covering in list_covering(name):
            if covering == name or covering.endswith("/"):
                yield from self._claims.get(covering, ())

    def _describe(self, claim: Claim) -> FileWork:
        is_live = is_alive(self._hosts.get(claim.who)) is not False
        return FileWork(claim.resource, claim.who, max(0, self.now - claim.since) / SECOND, True, is_live)

    def read_changes(self, resources: list[str]) -> dict[str, FileWork]:
        """The last changes of these files, by any agent."""
        streams = json.dumps([f"claim:{resource}" for resource in resources])
        rows = self._reader.read(sql.LAST_FILE_CHANGES, {"streams": streams}) if resources else ()
        return {change.resource: change for change in map(self._decode, rows)}

    def _decode(self, row: tuple[str, int, str]) -> FileWork:
        stream, at, meta = row
        fields = json.loads(meta)
        who = HolderId(fields["by"], fields.get("session", ""), fields.get("principal"))
        facts = (False, self.is_live(who.session), at / SECOND, fields.get("sha256"))
        return FileWork(stream.partition(":")[2], who, max(0, self.now - at) / SECOND, *facts)
