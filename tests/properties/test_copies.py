"""Whatever a history is, copied to the other kind and back, exported and imported, it is equal at every position."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from holdlog import HoldlogError
from holdlog.adapters.python.copying import copy
from holdlog.domain.claims.commands import AcquireClaim, RecordFileChange, ReleaseClaim
from holdlog.domain.commands import AnyCommand
from tests.contracts.test_copy import views
from tests.support.claim_calls import by
from tests.support.commands import clear, drop, put, require_chained, require_views_equal_the_log, rows, run, transact
from tests.support.copies import exported, imported, require_fork
from tests.support.places import engine, places
from tests.support.threads import append, change_data, fork, message, replace, result, results, start

NAMES = st.sampled_from(["a", "b/c", "ä %", "🦊"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
RESOURCES = st.sampled_from(["src/", "src/a.py", "custom://x"])
AGENTS = st.sampled_from(["ann", "bob", "ann/tests"])
COMMANDS: st.SearchStrategy[AnyCommand] = st.one_of(
    st.builds(lambda key, value, ttl: transact(put(key, value, ttl=ttl)), NAMES, VALUES, st.none() | st.just(1e3)),
    st.builds(lambda key: transact(drop(key)), NAMES),
    st.builds(lambda one, two, value: transact(put(one, value), put(two, value)), NAMES, NAMES, VALUES),
    st.builds(clear),
    st.builds(lambda resource, agent, wait: AcquireClaim(resource=resource, agent=agent, wait=wait), RESOURCES, AGENTS,
              st.sampled_from([0, 10_000_000])),
    st.builds(lambda resource, agent: ReleaseClaim(resource=resource, agent=agent), RESOURCES, AGENTS),
    st.builds(RecordFileChange, resource=RESOURCES, agent=AGENTS, sha256=st.sampled_from(["ab" * 32, None])),
    st.builds(lambda name, value: start(name, a=value), NAMES, VALUES),
    st.builds(lambda name, value: append(message(value), result("a"), thread=name), NAMES, VALUES),
    st.builds(lambda name, value, gone: change_data(None, gone, b=value, thread=name), NAMES, VALUES, NAMES),
    st.builds(lambda name, letters: replace(*results(letters), thread=name), NAMES, st.sampled_from(["", "a", "ab"])),
    st.builds(fork, NAMES, NAMES),
)  # fmt: skip


@pytest.mark.parametrize("kinds", [("file", "schema", "file"), ("schema", "file", "schema")], ids="-to-".join)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(COMMANDS, max_size=25))
def test_history_copied_exported_and_imported_is_equal_at_every_position(
    kinds: tuple[str, str, str], history: list[AnyCommand], postgres_server: str
) -> None:
    with TemporaryDirectory() as folder, places(Path(folder), postgres_server) as somewhere:
        first, second, third, fourth = (somewhere(kind) for kind in (*kinds, kinds[1]))
        with engine(first) as store:
            for number, command in enumerate(history):
                with suppress(HoldlogError):
                    run(store, command, by(f"s{number % 2}", request_id=f"r{number}"))
        reports = [copy(first, second, seal=True), copy(second, third, seal=True)]
        assert reports[0].store_id == reports[1].store_id
        with engine(first) as ours, engine(third) as theirs:
            assert rows(ours) == rows(theirs)
            assert views(ours) == views(theirs)
            require_chained(theirs)
            require_views_equal_the_log(theirs)
        imported(exported(third), fourth)
        require_fork(third, fourth)
        with engine(first) as ours, engine(fourth) as theirs:
            assert views(ours) == views(theirs)
            require_chained(theirs)
            require_views_equal_the_log(theirs)
