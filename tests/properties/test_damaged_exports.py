"""An export in which one byte changed is refused, or imported with the same events."""

from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
from hypothesis import example, given, settings

from holdlog import StateStore, StoreError
from holdlog.projections.projection import Row
from tests.support.commands import rows
from tests.support.copies import exported, imported
from tests.support.places import engine


@cache
def export() -> tuple[bytes, list[Row]]:
    """The text of an export, and the events in it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        with StateStore(path) as store:
            store.set("n", "a", {"x": 1.5}, updated_by="ann", reason="why", request_id="r")
            store.claim("src/", agent="bob", note="mine")
            store.set("n", "a", [], updated_by="bob", expected_version=1)
            store.release("src/", agent="bob")
        text = b"".join(exported(path))
        with engine(path) as source:
            return text, rows(source)


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, len(export()[0]) - 1), byte=st.integers(0, 255), cut=st.booleans())
@example(at=0, byte=0x1F, cut=False)
def test_changed_byte_of_an_export_is_noticed_or_harmless(at: int, byte: int, cut: bool) -> None:
    text, events = export()
    damaged = text[:at] if cut else text[:at] + bytes([byte]) + text[at + 1 :]
    with TemporaryDirectory() as folder:
        target = Path(folder) / "state.db"
        with suppress(StoreError):
            imported([damaged], target)
            assert not cut or damaged == text.rstrip(b"\n")
            with engine(target) as store:
                assert rows(store)[:-1] == events
        assert [it.name for it in Path(folder).iterdir() if it.suffix not in (".db", ".gate")] == []
