"""The proof: agents and a person work side by side for a while, and the log and their journal are checked."""

import re
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from holdlog.adapters.compose import open_holdlog
from holdlog.domain.claims.claim import ClaimExpired, ClaimGranted, ClaimReleased, ClaimResumed
from holdlog.domain.envelope import Recorded
from holdlog.domain.message import Event
from tests.support.processes.hosts import EDIT, ENVIRONMENT, Host, held, store_of
from tests.support.processes.side_by_side import ACROSS, EDITOR, FILES, Actor, Claude, Codex, Editor, Journal, author
from tests.support.processes.soundness import require_sound
from tests.support.processes.workers import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")

LEASE = 8
"""Seconds."""
SLACK = 12
"""Seconds that a busy machine may need on top of a lease."""
STEPS = 12
"""Of each actor."""
HELD = re.compile(
    r"holdlog: (?P<file>\S+) (is held by (?P<holder>\S+) since \d\d:\d\d:\d\d UTC \(.+\)"
    r"(; the claim expires|, whose process has ended; it becomes free) in .+"
    r"|is reserved for (?P<waiter>\S+), who waited for it, for at most .+)"
    r"\. Work on something else first, or (call claim\(resource=.+, agent=.+, wait_seconds=50\) of holdlog"
    r"|run: holdlog claim \S+ --agent \S+ --wait 50), then try again\."
)
STALE = re.compile(
    r"holdlog: (?P<holder>\S+) changed \S+ at \d\d:\d\d:\d\d UTC, after you read it; read it again before you edit it\."
)


@pytest.fixture
def worktrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A repository of forty files with a policy, and a second worktree of it."""
    monkeypatch.setitem(ENVIRONMENT, "HOLDLOG_LEASE_SECONDS", str(LEASE))
    main, other = tmp_path / "main", tmp_path / "other"
    main.mkdir()
    for name in FILES:
        (main / name).write_text("")
    across = "\n".join(f'"{name}" = "across-worktrees"' for name in sorted(ACROSS))
    (main / "holdlog.toml").write_text(f'stale-reads = "deny"\n[paths]\n{across}\n')
    for words in (
        ["init", "-q"],
        ["config", "user.email", "a@example.org"],
        ["config", "user.name", "a"],
        ["add", "."],
        ["commit", "-qm", "first"],
        ["worktree", "add", "-q", str(other)],
    ):
        subprocess.run(["git", *words], cwd=main, check=True)
    open_holdlog(store_of(main)).close()
    return main, other


@pytest.mark.check
@pytest.mark.parametrize("seed", [1, 2])
def test_agents_side_by_side_never_overwrite_each_other(worktrees: tuple[Path, Path], seed: int) -> None:
    main, other = worktrees
    journal = Journal()
    actors: list[Actor] = [
        Claude("claude1", main, journal, seed, STEPS),
        Claude("claude2", main, journal, seed, STEPS),
        Claude("claude3", other, journal, seed, STEPS),
        Codex("codex", main, journal, seed, STEPS),
        Editor(EDITOR, main, journal, seed, 3 * STEPS),
    ]
    for actor in actors:
        actor.start()
    for actor in actors:
        actor.join()
    assert journal.problems == []
    require_one_session_at_a_time(journal)
    require_no_unread_change_overwritten(journal)
    require_denials_with_holder_and_remedy(journal)
    require_one_holder_in(log_of(main))
    until(lambda: held(main) == {}, LEASE + SLACK)
    require_sound(store_of(main))


@pytest.mark.check
def test_crash_of_hook_server_or_host_blocks_a_file_for_a_lease_at_most(worktrees: tuple[Path, Path]) -> None:
    main, _ = worktrees
    hosts = [Host(main) for _ in range(4)]
    with_hook, with_server, with_host, other = hosts
    try:
        for each in (with_server, with_host, other):
            each.serve()
        facts = {"session_id": "s-1", "cwd": str(main), "hook_event_name": EDIT, "tool_name": "Edit"}
        seconds = 0.1
        while FILES[0] not in held(main):  # killed as early as it can claim
            with_hook.crash_hook({**facts, "tool_input": {"file_path": str(main / FILES[0])}}, seconds)
            seconds += 0.05
        assert with_server.edit("s-2", FILES[1]) is None
        assert with_host.edit("s-3", FILES[2]) is None
        with_server.kill_server()
        with_host.kill()
        crashed_at = time.monotonic()
        free = set[str]()
        while len(free) < 3:
            free |= {name for name in FILES[:3] if other.edit("s-9", name) is None}
            assert time.monotonic() - crashed_at < LEASE + SLACK
    finally:
        for each in hosts:
            each.kill()
    until(lambda: held(main) == {}, LEASE + SLACK)


def require_one_session_at_a_time(journal: Journal) -> None:
    by_file = defaultdict(list)
    for change in journal.changes:
        by_file[change.path.name if change.path.name in ACROSS else str(change.path)].append(change)
    for changes in by_file.values():
        changes.sort(key=lambda it: it.began)
        for former, latter in pairwise(changes):
            assert former.session == latter.session or former.ended <= latter.began, (former, latter)
    assert len(journal.changes) >= 4 * STEPS // 2
    assert any(len({it.session for it in changes}) > 1 for changes in by_file.values())


def require_no_unread_change_overwritten(journal: Journal) -> None:
    for change in journal.changes:
        lost = {author(line) for line in change.found - change.read}
        assert lost <= {change.session, EDITOR}, change


def require_denials_with_holder_and_remedy(journal: Journal) -> None:
    """No agent is denied because of its own claim: the holder is another session, or another agent of the same one."""
    assert journal.denials
    for denial in journal.denials:
        found = HELD.fullmatch(denial.reason) or STALE.fullmatch(denial.reason)
        assert found is not None, denial
        holder = found["holder"] or found["waiter"]
        is_sub_agent = holder.startswith(f"{denial.session_name}/")
        assert holder != denial.session_name, denial
        assert not (found.re is STALE and is_sub_agent), denial


def log_of(main: Path) -> list[Recorded[Event]]:
    engine = open_holdlog(store_of(main))
    try:
        return list(engine.read_now(lambda reader: reader.log(0, 1_000_000)))
    finally:
        engine.close()


def require_one_holder_in(log: list[Recorded[Event]]) -> None:
    """No file is held by two sessions."""
    grants: dict[str, dict[int, str | None]] = defaultdict(dict)
    granted = 0
    for recorded in log:
        event, envelope = recorded.event, recorded.envelope
        holders = grants[envelope.stream]
        if isinstance(event, ClaimReleased | ClaimExpired):
            holders.pop(event.grant or 0)
        elif isinstance(event, ClaimGranted | ClaimResumed):
            holders.pop((event.grant if isinstance(event, ClaimResumed) else event.instead_of) or 0, None)
            holders[envelope.version] = event.session
            assert len(set(holders.values())) == 1, recorded
            granted += 1
    assert granted
