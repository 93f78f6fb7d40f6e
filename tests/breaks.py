"""Thirty breaks of the code, each with the test that must fail for it: `make breaks` (docs/faults.md)."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SECONDS = 60
"""After which a test that hangs counts as failed."""


class Break(NamedTuple):
    """`file` contains `text` once; with `broken` in its place, `test` (its file below tests/, and its name) must fail.
    `promise`: the number in docs/promises.md."""

    name: str
    promise: int
    what: str
    file: str
    text: str
    broken: str
    test: str


# fmt: off
BREAKS = [
    Break("fsync-off", 1, "A commit is not synced to the disk",
        "adapters/stores/sqlite/schema.py", "PRAGMA synchronous = FULL", "PRAGMA synchronous = OFF",
        "doors/test_faults_power.py::test_write_is_synced_before_its_acknowledgement"),
    Break("half-transaction", 3, "A transaction with a refused operation writes the others",
        "domain/records.py", "            raise\n        if changes:", "            continue\n        if changes:",
        "doors/test_library_changes.py::test_refused_transaction_names_its_operation_and_changes_nothing[file]"),
    Break("doubt-hidden", 4, "A commit that failed in its sync is reported as one that certainly did not happen",
        "adapters/stores/sqlite/store.py", "in_doubt = not (sure or _failed_before_sync(error))", "in_doubt = False",
        "doors/test_faults_disk.py::test_write_in_doubt_is_resolved_by_its_request_id"),
    Break("request-forgotten", 5, "The result of a request with a request_id is not remembered",
        "adapters/engine/engine.py", "batch.remembered.append(key)", "batch.requests.pop(key)",
        "doors/test_promises.py::test_promise_5_a_repeated_request_returns_the_first_result[file-set]"),
    Break("version-reused", 9, "After a deletion the versions of a key begin again",
        "domain/records.py", "Record(record.stream, record.version + 1, position)",
        "Record(record.stream, 0, position)",
        "test_records.py::test_version_from_before_a_deletion_never_matches_again"),
    Break("version-unchecked", 10, "A write commits without a check of its expected version",
        "domain/records.py", "if step.expected_version != actual:", "if step.expected_version < 0:",
        "doors/test_library_values.py::test_one_of_several_writers_with_the_same_version_wins[file]"),
    Break("folder-overlap", 14, "A claim of a folder does not exclude claims of its files",
        "domain/claims/resource.py", "return subtree.endswith(\"/\") and (", "return False and (",
        "doors/test_claims.py::test_resources_overlap_by_segments_in_either_order[file]"),
    Break("sub-agent-blocked", 14, "An agent blocks its own sub-agents",
        "domain/claims/board.py", "return of_session and who.agent.startswith(claim.who.agent + \"/\")", "return False",
        "doors/test_claim_holders.py::test_claim_admits_the_sub_agents_of_its_own_session_only[file]"),
    Break("also-ignored", 15, "A claim of several resources checks only the first of them",
        "domain/claims/board.py", "self.list_grants(*request.resources)", "self.list_grants(request.resources[0])",
        "doors/test_claims.py::test_several_are_claimed_together_or_not_at_all[file]"),
    Break("guard-unchecked", 16, "A guarded write is not checked against its claim",
        "domain/claims/fencing.py", "if claim is None or not board.is_held_by(claim, who):", "if not who:",
        "doors/test_claims.py::test_write_without_its_claim_is_fenced_and_changes_nothing[file]"),
    Break("namesake-releases", 17, "An agent of the same name in another session counts as the holder",
        "domain/claims/board.py", "if claim.who == who and self", "if claim.who[0] == who[0] and self",
        "doors/test_claim_holders.py::test_namesake_in_another_session_is_another_holder[file]"),
    Break("expired-counts", 18, "The claims of a holder that has ended still count",
        "domain/claims/board.py", "return holder.expires_at if holder", "return LAST if holder",
        "doors/test_claims.py::test_claim_of_a_live_process_expires_sixty_seconds_after_its_last_beat[file]"),
    Break("wall-clock", 20, "Leases are measured by the wall clock",
        "adapters/stores/sqlite/store.py", "steady = time.monotonic_ns() // 1000", "steady = time.time_ns() // 1000",
        "doors/test_faults_claims.py::test_wall_clock_that_jumps_by_an_hour_ends_and_revives_no_claim"),
    Break("loss-twice", 21, "A lost claim is reported again and again",
        "domain/claims/board.py", "self.keep_holder(holder._replace(lost=()))", "self.keep_holder(holder)",
        "doors/test_claim_holders.py::test_expired_claim_is_reported_to_its_holder_once_and_to_nobody_else[file]"),
    Break("hook-silent", 22, "A hook that fails allows the edit without a word to the agent",
        "adapters/hooks/entry.py", "self._output = self._warn(problem)", "self._output = Output()",
        "doors/test_hooks.py::test_store_that_cannot_be_used_allows_the_edit_and_says_so"),
    Break("add-of-others", 22, "`git add` takes in the uncommitted files of other sessions",
        "adapters/hooks/git.py", "dict.fromkeys((\"add\", \"stage\"), _add)", "dict.fromkeys((\"stage\",), _add)",
        "test_guard.py::test_command_over_dirty_files_of_a_live_session_is_denied"),
    Break("wake-lost", 23, "A write does not wake those who wait for its key",
        "adapters/engine/waiting.py", "topics |= {stream, stream[: stream.index(\":\") + 1]}", "topics |= {stream[1:]}",
        "doors/test_library_waiting.py::test_one_change_wakes_all_its_watchers[memory]"),
    Break("queue-reversed", 25, "The last waiter of a queue is served first",
        "domain/claims/board.py", "if self.find_ticket_end(it) > self.now), key=_by_position)\n\n    def list_earlier",
        "if self.find_ticket_end(it) > self.now), key=_by_position)[::-1]\n\n    def list_earlier",
        "doors/test_claim_queue.py::test_release_hands_over_to_the_first_waiter_in_its_own_transaction[file]"),
    Break("deadlock-unseen", 26, "A wait that would never end is not refused",
        "domain/claims/acquire.py", "cycle = find_cycle(board, request) if waits else []", "cycle = []",
        "test_claims.py::test_wait_that_would_never_end_is_refused_with_its_cycle"),
    Break("redaction-partial", 27, "A redacted text stays in the remembered result of its request",
        "adapters/stores/redact.py", "for key in (*keys,", "for key in () and (*keys,",
        "doors/test_audit.py::test_redacted_text_is_gone_from_every_file_and_the_log_still_verifies"),
    Break("chain-skips", 28, "The digest of an event does not cover the events before it",
        "adapters/stores/codec.py", "return sha256(previous + sha256(", "return sha256(sha256(",
        "doors/test_audit.py::test_export_is_verified_without_holdlog"),
    Break("doctor-blind", 29, "`doctor` does not compare the views of values with the log",
        "adapters/stores/check.py", "if not (is_there and _is_plain(row, version, position)):", "if not is_there:",
        "doors/test_audit.py::test_doctor_finds_a_view_that_differs_and_rebuilds_it_from_the_log"),
    Break("event-repeated", 31, "A stream that a client opens again repeats an event",
        "adapters/http/events.py", "else str(event[\"position\"])", "else str(event[\"position\"] - 1)",
        "doors/test_http_api.py::test_client_that_reconnects_gets_every_event_once"),
    Break("files-open", 35, "The files of a store are readable by other users",
        "adapters/operating_system/files.py", "FILE_MODE: Final = 0o600", "FILE_MODE: Final = 0o644",
        "doors/test_command_store.py::test_files_of_a_store_are_private_under_any_umask"),
    Break("host-unchecked", 37, "A server answers requests under any host name",
        "adapters/http/edge.py", "and not self._allows(host, scope):", "and not host:",
        "doors/test_http_api.py::test_pages_of_other_sites_reach_nothing"),
    Break("scope-unchecked", 37, "Each grant of a token allows all scopes",
        "adapters/auth/access.py", "is_included = granted == \"admin\" or scope in", "is_included = True or scope in",
        "doors/test_http_access.py::test_token_may_do_what_its_scopes_allow"),
    Break("space-unchecked", 39, "A token of a space names the namespaces of all",
        "adapters/auth/access.py", "update={\"namespace\": label + operation.namespace}", "update={}",
        "doors/test_http_access.py::test_token_of_a_space_reaches_nothing_of_another"),
    Break("value-shown", 41, "An error quotes the stored value",
        "domain/values.py", "f\"the value is not a number, so", "f\"the value {value} is not a number, so",
        "doors/test_library_changes.py::test_refused_update_changes_nothing_and_shows_no_value"),
    Break("policy-of-worktree", 43, "An edit of holdlog.toml that nobody has committed is in force",
        "adapters/policy/in_force.py", "read_file(root) if worktree is None else _read_committed(worktree)",
        "read_file(root)",
        "test_policy.py::test_policy_of_head_is_in_force_and_an_edit_relaxes_nothing"),
    Break("undo-removes-more", 44, "`init --undo` removes the hooks of a person next to its own",
        "adapters/hooks/edits.py", "[item for item in current if not _is_own(item, entry)]", "[]",
        "test_init.py::test_undo_keeps_what_a_person_added_since_and_empty_containers"),
]
# fmt: on


def run_test(tree: Path, test: str) -> str:
    """Run one test in a copy of the tree, and return the last line of pytest: what failed, or how many passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", f"--timeout={SECONDS}", f"tests/{test}"]
    environment = os.environ | {"PYTHONPATH": str(tree / "build/dev")}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    return (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]


def copy_tree(folder: Path) -> Path:
    """Copy the files that git knows, with changes that are not committed, and the package made of links to them."""
    tree = folder / "tree"
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    shutil.copytree(ROOT / "build/dev", tree / "build/dev", symlinks=True)
    return tree


def try_break(tree: Path, it: Break, number: int) -> str:
    """What is wrong with a break; empty if its test passes without it and fails with it."""
    path = tree / it.file
    text = path.read_text()
    if text.count(it.text) != 1:
        return f"{it.file} does not contain its text exactly once"
    if " passed" not in (result := run_test(tree, it.test)) or " failed" in result:
        return f"its test does not pass without it: {result}"
    path.write_text(text.replace(it.text, it.broken))
    seconds = path.stat().st_mtime + number  # Python compares seconds and sizes of what it has compiled
    os.utime(path, (seconds, seconds))
    try:
        result = run_test(tree, it.test)
    finally:
        path.write_text(text)
    return "" if re.search(r"\b[1-9]\d* failed", result) else f"its test does not find it: {result}"


def format_table() -> list[str]:
    """The lines of the table in docs/faults.md."""
    rows = [f"| {it.promise} | {it.what} | `{it.test.split('[')[0].replace('::test_', '::')}` |" for it in BREAKS]
    return ["| promise | broken on purpose | test |", "|---|---|---|", *rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", choices=[it.name for it in BREAKS])
    parser.add_argument("--table", action="store_true", help="print the table of docs/faults.md, and run nothing")
    options = parser.parse_args()
    if options.table:
        print(*format_table(), sep="\n")
        return 0
    chosen = [it for it in BREAKS if options.only is None or it.name in options.only]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="holdlog-breaks-") as folder:
        Path(folder).chmod(0o755)  # some tests run commands as another user
        tree = copy_tree(Path(folder))
        for number, it in enumerate(chosen, 1):
            began = time.monotonic()
            problem = try_break(tree, it, number)
            missed += problem != ""
            print(f"{it.name:20} {time.monotonic() - began:5.1f} s  {problem or 'found by ' + it.test}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} breaks are found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
