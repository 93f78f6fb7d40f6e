"""The tables of options in the documents, made from their declarations.

`python -m tests.support.option_tables` writes them; run it after a change of an option.
"""

import re
from pathlib import Path
from typing import Final

from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.options import AuthOptions, JwtOptions
from holdlog.adapters.cli.proof import AnchorOptions
from holdlog.adapters.cli.serve import ServeOptions
from holdlog.adapters.cli.settings import StoreOptions, WorkspaceOptions
from holdlog.adapters.http.options import HttpOptions
from holdlog.adapters.nats.options import NatsOptions, StreamLimits
from holdlog.adapters.operating_system.options import SWITCH, Option, declared

DOCS: Final = Path(__file__).parents[2] / "docs"
TABLES: Final[dict[str, tuple[type, ...]]] = {
    "command-line.md": (StoreOptions, WorkspaceOptions, ServeOptions, Settings),
    "http.md": (HttpOptions, AuthOptions, JwtOptions, AnchorOptions),
    "nats.md": (NatsOptions, StreamLimits),
}
_HEAD: Final = "| option | in the environment | default | |\n|---|---|---|---|\n"
_PLACE: Final = re.compile(r"(?<=<!-- options -->\n\n).*?(?=\n<!-- /options -->)", re.DOTALL)


def with_table(document: str) -> str:
    """The text of a document, with the table that its options have now."""
    rows = "".join(_row(option) for model in TABLES[document] for option in declared(model))
    return _PLACE.sub(lambda _: _HEAD + rows, (DOCS / document).read_text())


def _row(option: Option) -> str:
    value = "" if option.rule is SWITCH else f" {option.rule.metavar}"
    flag = f"`{option.flag}{value}`" if option.has_flag else ""
    variable = f"`{option.variable}`" + (", `…_FILE`" if option.is_secret else "")
    cells = (flag, variable, option.shown_default, option.help + ("; repeatable" if option.is_list else ""))
    escaped = [cell.replace("|", r"\|").replace(" *", r" \*") for cell in cells]
    return f"| {' | '.join(escaped)} |\n"


if __name__ == "__main__":
    for document in TABLES:
        (DOCS / document).write_text(with_table(document))
