"""Threads as lists would have them: nothing of the product is in here."""

from typing import Any, NamedTuple

Step = tuple[str, Any]
"""`s`: started. `m`, `r`: a message, a result of that name. `c`: cleared. `d`: written and deleted keys."""


class Missing(Exception):
    pass


class Taken(Exception):
    pass


class TooNew(Exception):
    """The versions that there are."""


class Changed(Exception):
    """The data version that stands, and the keys that changed."""


class Told(NamedTuple):
    version: int
    data_version: int
    events: int
    created: bool = False
    appended: int = 0
    already: int = 0
    deleted: tuple[str, ...] = ()
    checksums: tuple[str, ...] = ()
    messages: int = 0
    results: int = 0
    parent: str | None = None
    parent_version: int | None = None


class Threads:
    def __init__(self) -> None:
        self.steps: dict[str, list[Step]] = {}
        self.parents: dict[str, tuple[str, int]] = {}

    def start(self, name: str, data: dict[str, Any]) -> Told:
        if name in self.steps:
            return self._add(name)
        self.steps[name] = []
        return self._add(name, ("s", None), *_change(data))._replace(created=True)

    def append(self, name: str, items: list[Step]) -> Told:
        self._require(name)
        standing = set(self.results(name))
        fresh: list[Step] = []
        for kind, text in items:
            if kind == "m" or text not in standing:
                fresh.append((kind, text))
            if kind == "r":
                standing.add(text)
        asked = tuple(text for kind, text in items if kind == "r")
        return self._add(name, *fresh)._replace(already=len(items) - len(fresh), checksums=asked)

    def replace(self, name: str, results: str) -> Told:
        self._require(name)
        wanted, standing = list(dict.fromkeys(results)), self.results(name)
        if wanted[: len(standing)] == standing:
            return self._add(name, *(("r", it) for it in wanted[len(standing) :]))
        return self._add(name, ("c", None), *(("r", it) for it in wanted))

    def change(self, name: str, expected: int | None, written: dict[str, Any], deleted: tuple[str, ...]) -> Told:
        self._require(name)
        stands = self.data_version(name)
        if expected is not None and expected != stands:
            changes = [it for kind, it in self.steps[name][expected:] if kind == "d"]
            raise Changed(stands, tuple(sorted({key for new, gone in changes for key in (*new, *gone)})))
        gone = tuple(key for key in dict.fromkeys(deleted) if key in self.held(name)[0])
        return self._add(name, *_change(written, gone))._replace(deleted=gone)

    def fork(self, name: str, parent: str, version: int | None) -> Told:
        if name in self.steps:
            raise Taken
        self._require(parent)
        there = len(self.steps[parent])
        version = there if version is None else version
        if version > there:
            raise TooNew(there)
        data, items = self.held(parent, version)
        self.steps[name], self.parents[name] = [], (parent, version)
        return self._add(name, ("s", None), *_change(data), *items)._replace(created=True)

    def data_version(self, name: str) -> int:
        return max((number for number, (kind, _) in enumerate(self.steps[name], 1) if kind == "d"), default=0)

    def results(self, name: str) -> list[str]:
        return [text for kind, text in self.held(name)[1] if kind == "r"]

    def held(self, name: str, version: int | None = None) -> tuple[dict[str, Any], list[Step]]:
        """Data, messages and results."""
        data: dict[str, Any] = {}
        items: list[Step] = []
        for kind, what in self.steps[name][:version]:
            if kind in "mr":
                items.append((kind, what))
            elif kind == "c":
                items = [it for it in items if it[0] == "m"]
            elif kind == "d":
                data = {key: value for key, value in {**data, **what[0]}.items() if key not in what[1]}
        return data, items

    def _require(self, name: str) -> None:
        if name not in self.steps:
            raise Missing

    def _add(self, name: str, *steps: Step) -> Told:
        self.steps[name] += steps
        appended = sum(kind in "mr" for kind, _ in steps)
        messages, results = (sum(kind == it for kind, _ in self.held(name)[1]) for it in "mr")
        parent, version = self.parents.get(name, (None, None))
        return Told(
            len(self.steps[name]),
            self.data_version(name),
            len(steps),
            appended=appended,
            messages=messages,
            results=results,
            parent=parent,
            parent_version=version,
        )


def _change(written: dict[str, Any], deleted: tuple[str, ...] = ()) -> list[Step]:
    return [("d", (written, deleted))] if written or deleted else []
