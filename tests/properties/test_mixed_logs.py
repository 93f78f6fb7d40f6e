"""A log with events of both formats, some of them redacted, verifies wherever it is; so does every copy of it."""

from contextlib import nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from holdlog import HoldlogError, InvalidError, copy
from holdlog.adapters.stores.sqlite.memory import open_memory
from holdlog.domain.commands import AnyCommand
from holdlog.domain.message import Caller
from holdlog.domain.store_log import Part
from tests.contracts.test_copy import views
from tests.properties.test_copies import COMMANDS
from tests.support.commands import redact, require_chained, require_views_equal_the_log, rows, run, whole_log
from tests.support.copies import exported, imported, require_fork
from tests.support.kinds import InDatabase, InFile, Kind
from tests.support.older import format_1
from tests.support.places import Place, engine, places

INVISIBLE = "\u115f\u1160\u2800\u3164\uffa0"
VISIBLE = st.characters(codec="utf-8", exclude_categories=["C", "Z", "M"], exclude_characters=INVISIBLE)
TEXTS = st.none() | st.text(VISIBLE, min_size=1, max_size=20)
STEPS = st.lists(st.tuples(COMMANDS, st.booleans(), TEXTS), max_size=25)
"""Commands, whether release 0.1 runs them, and their reasons."""
Step = tuple[AnyCommand, bool, str | None]


def follow(store: Any, steps: list[Step]) -> None:
    for number, (command, by_0_1, reason) in enumerate(steps):
        caller = Caller(session=f"s{number % 2}", principal="p" if number % 3 else None, reason=reason)
        with suppress(HoldlogError), format_1() if by_0_1 else nullcontext():
            run(store, command, caller)


def formats(store: Any) -> dict[int, int]:
    return {it.envelope.position: it.envelope.format for it in whole_log(store)}


def redact_if_possible(store: Any, position: int, part: Part) -> None:
    with suppress(InvalidError):  # it has no such text, or one of format 1
        redact(store, position, part)


@pytest.mark.check
@settings(max_examples=30, deadline=None)
@given(steps=STEPS)
def test_a_log_of_both_formats_verifies_in_memory(steps: list[Step]) -> None:
    store = open_memory()
    follow(store, steps)
    require_chained(store)
    require_views_equal_the_log(store)


@pytest.mark.parametrize("kinds", [("file", "schema"), ("schema", "file")], ids="-to-".join)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=STEPS,
    how=st.sampled_from(["copy", "move", "import"]),
    redacted=st.lists(st.tuples(st.integers(1, 25), st.sampled_from(get_args(Part))), max_size=3),
)
def test_log_of_both_formats_verifies_in_every_store(
    kinds: tuple[str, str], steps: list[Step], how: str, redacted: list[tuple[int, Part]], postgres_server: str
) -> None:
    with TemporaryDirectory() as folder, places(Path(folder), postgres_server) as somewhere:
        source, target = (somewhere(kind) for kind in kinds)
        with engine(source) as store:
            follow(store, steps)
            last = len(whole_log(store))
            for position, part in redacted:
                if position <= last:
                    redact_if_possible(store, position, part)
            of_format = formats(store)
        kind_of(source).rebuilt()
        if how == "import":
            imported(exported(source), target)
        else:
            copy(source, target, seal=how == "move")
        for place in (source, target):
            assert kind_of(place).bad() == {}
            with engine(place) as store:
                require_chained(store)
                require_views_equal_the_log(store)
                assert formats(store).items() >= of_format.items()
        if how != "move":
            require_fork(source, target)
        with engine(source) as ours, engine(target) as theirs:
            assert rows(theirs)[: len(of_format)] == rows(ours)
            assert views(ours) == views(theirs)


def kind_of(place: Place) -> Kind:
    return InFile(place) if isinstance(place, Path) else InDatabase(place)
