"""Names that are stored or measured do not change with the names of classes."""

from collections.abc import Callable
from functools import partial

import pytest

from holdlog.adapters.http.operations.outcomes import kind_of
from holdlog.adapters.runtime import command_handler
from holdlog.domain.agent import Register
from holdlog.domain.claims import commands as claims
from holdlog.domain.record import AnyOperation, AppendItem, ClearNamespace, Delete, Merge, Patch, Set, Transact
from holdlog.domain.threads import commands as threads
from holdlog.domain.token import RevokeToken
from holdlog.domain.value import Json

ONE = Json.of(1)
RESULT = threads.NewResult(value=ONE, agent="ann", checksum="0" * 32)
SET = Set(namespace="n", key="k", value=ONE)

REMEMBERED: list[tuple[command_handler.AnyCommand, str, str]] = [
    (Transact(operations=(SET,), by="ann"), "c94a5fc775b0a6bb", "set"),
    (
        Transact(operations=(SET, Delete(namespace="n", key="o", expected_version=3)), by="ann"),
        "eedd7f437df22f06",
        "transact",
    ),
    (ClearNamespace(namespace="n", by="ann"), "4ad459391c13b8ce", "clear_namespace"),
    (
        claims.AcquireClaim(
            resource="a.py", agent="ann", also=("b.py",), explicit=True, wait=5, receipt="x", new_receipt="y"
        ),
        "113a289c1b7bbf96",
        "claim",
    ),
    (
        claims.ReleaseClaim(resource="a.py", agent="ann", outcome="modified", note="done"),
        "f6bd1ed709c1c422",
        "release",
    ),
    (Register(agent="ann", model="m"), "1dba02f66303c9d9", "register"),
    (threads.StartThread(thread="t", data={"a": ONE}, by="ann"), "a95541cf7d5df54e", "start_thread"),
    (threads.StartThread(thread="t", by="ann", request_digest="d"), "c010dae484ee5897", "start_thread"),
    (threads.ForkThread(thread="t", parent="s", parent_version=2, by="ann"), "46e35d6de7a2a22e", "fork_thread"),
    (threads.Append(thread="t", items=(threads.NewMessage(value=ONE), RESULT), by="ann"), "ce66b7fb5f5628f8", "append"),
    (threads.ReplaceResults(thread="t", results=(RESULT,), by="ann"), "05fd393613355e1b", "replace_results"),
    (
        threads.ChangeData(thread="t", written={"a": ONE}, deleted=("b",), expected_data_version=1, by="ann"),
        "29c3320c0d32b5d9",
        "change_data",
    ),
]
OTHERS: list[tuple[command_handler.AnyCommand, str]] = [
    (claims.StopWaiting(resource="a", agent="ann", ticket=1), "step_back"),
    (claims.Sweep(), "sweep"),
    (claims.Renew(server="v"), "renew"),
    (claims.CollectLostClaims(session=None), "tell_losses"),
    (claims.TouchSessions(sessions=()), "touch_sessions"),
    (claims.EndSession(session="s"), "end_session"),
    (RevokeToken(name="ci", by="ann"), "revoke_token"),
]


@pytest.mark.parametrize(("command", "digest", "word"), REMEMBERED, ids=lambda it: type(it).__name__)
def test_request_is_recognised_by_its_stored_fingerprint(
    command: command_handler.AnyCommand, digest: str, word: str
) -> None:
    assert command_handler.fingerprint(command).hex().startswith(digest)
    assert kind_of(command) == word


@pytest.mark.parametrize(("command", "word"), OTHERS, ids=lambda it: type(it).__name__)
def test_command_keeps_its_name_in_metrics(command: command_handler.AnyCommand, word: str) -> None:
    assert kind_of(command) == word


def test_a_release_under_another_receipt_is_another_request() -> None:
    one, other = (claims.ReleaseClaim(agent="ann", receipt=receipt) for receipt in ("x", "y"))
    assert command_handler.fingerprint(one) != command_handler.fingerprint(other)


@pytest.mark.parametrize(
    ("update", "numbered"),
    [
        (partial(Merge, patch=ONE), True),  # alone it is identified as release 0.1 did, with the setting
        *((partial(AppendItem, value=ONE), numbered) for numbered in (True, False)),
        *((partial(Patch, patch=Json("[]")), numbered) for numbered in (True, False)),
    ],
)
def test_request_is_recognised_whatever_the_largest_value_may_be(
    update: Callable[..., AnyOperation], numbered: bool
) -> None:
    one, other = (
        Transact(operations=(update(namespace="n", key="k", max_bytes=most),), by="ann", numbered=numbered)
        for most in (262_144, 524_288)
    )
    assert command_handler.fingerprint(one) == command_handler.fingerprint(other)
