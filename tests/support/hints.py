"""Print every hint that a response may contain, for reviewers: `python -m tests.support.hints`."""

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Final, NamedTuple

from holdlog.adapters.api import refusals
from holdlog.adapters.api.claims import presenter as claims
from holdlog.adapters.api.values import presenter as values
from holdlog.adapters.http import answers
from holdlog.adapters.mcp.server import DEFAULT_PREFIX
from holdlog.adapters.mcp.tools import kv

MODULES: Final[tuple[ModuleType, ...]] = (claims, values, refusals, kv, answers)
_EXAMPLE: Final = "custom://" + "x" * 64
"""What `{}` becomes in a hint that is formatted: the longest custom name, which is longer than any version."""


class Hint(NamedTuple):
    """`name`: the constant that contains it, with its key in a mapping."""

    module: str
    name: str
    template: str

    @property
    def shown(self) -> str:
        """The hint with the longest insertion and the default tool prefix."""
        insertion = _EXAMPLE if self.template.endswith(" claim {}.") else str(10**9)
        return values.named(self.template.format(insertion), DEFAULT_PREFIX)


def hints() -> list[Hint]:
    return [hint for module in MODULES for hint in _hints(module)]


def _hints(module: ModuleType) -> Iterator[Hint]:
    """The texts of a module: constants and values of mappings with a space in them."""
    for name, value in vars(module).items():
        if not name.isupper():
            continue
        texts = {f"{name}[{key}]": text for key, text in value.items()} if isinstance(value, Mapping) else {name: value}
        yield from (
            Hint(module.__name__.removeprefix("holdlog.adapters."), where, text)
            for where, text in texts.items()
            if isinstance(text, str) and " " in text
        )


if __name__ == "__main__":
    for hint in hints():
        print(f"{hint.module}.{hint.name} ({len(hint.shown)})\n    {hint.shown}")
