"""`holdlog export` and `import`."""

import sys
from contextlib import closing
from typing import Any

from holdlog.adapters.cli.fields import add_fields, collect, rename_argument
from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.cli.store import find_caller, open_to_read, open_to_write
from holdlog.adapters.cli.texts import print_json, print_note
from holdlog.adapters.operations.json import Object, to_object
from holdlog.adapters.operations.transfer import Export, Import
from holdlog.adapters.operations.values import ExportNamespace
from holdlog.domain.refusals import InvalidError


def export(words: list[str]) -> int:
    parser = Parser(
        "export",
        "Write the log as JSON lines, which import reads and docs/verify_log.py verifies without holdlog; with"
        " NAMESPACE, its values and their histories as one JSON object.",
        ("export > log.jsonl", "export --first 100 --last 200 --no-values", "export campaign > campaign.json"),
        has_json=False,
    )
    add_fields(parser, ExportNamespace, ("namespace",), ("after_key",), "namespace")
    add_fields(parser, Export, (), ("destination", "values"))
    parser.add_argument("--no-values", action="store_true", help="only the hashes of what people wrote")
    options = parser.parse_args(words)
    kind = ExportNamespace if hasattr(options, "namespace") else Export
    try:
        arguments = collect(kind, options)
        if kind is Export:
            arguments |= {"destination": sys.stdout.buffer, "values": not options.no_values}
        kind.parse(arguments)
        with closing(open_to_read(options)) as engine:
            if kind is ExportNamespace:
                print_json(_export(engine, arguments))
            else:
                result = engine.query(kind.parse(arguments))
                sys.stdout.buffer.flush()
                print_note(f"exported events {result.first} to {result.last}")
    except InvalidError as error:
        raise rename_argument(error, kind, ("namespace",)) from None
    return 0


def _export(engine: Any, arguments: dict[str, Any]) -> Object:
    """The export of a namespace: all pages in one object."""
    pages = [to_object(engine.query(ExportNamespace.parse(arguments)))]
    while (after := pages[-1].pop("next_after", None)) is not None:
        pages.append(to_object(engine.query(ExportNamespace.parse(arguments | {"after_key": after}))))
    counts = {name: sum(page[name] for page in pages) for name in ("record_count", "history_count")}
    return pages[0] | counts | {"records": [record for page in pages for record in page["records"]]}


def import_(words: list[str]) -> int:
    parser = Parser(
        "import",
        "Import an export of a whole log into a new store; all of it is verified first.",
        ("import log.jsonl --db new.db", "export | holdlog import - --db postgresql://ann@db.example/team"),
    )
    parser.add_argument("source", metavar="FILE", help="an export; - is standard input")
    options = parser.parse_args(words)
    source = sys.stdin.buffer if options.source == "-" else options.source
    operation = Import.parse({"source": source})
    with closing(open_to_write(options)) as engine:  # stays if this fails: others may use it by then
        result = operation.run(engine, find_caller(options, engine)[0])
    fields = to_object(result)
    print_json(fields) if options.json else print(f"imported {fields['last']} events")
    return 0
