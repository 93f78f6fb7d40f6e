"""`holdlog doctor`: whether the store is sound, and how hosts are set up."""

import sys
from contextlib import closing
from typing import Final

from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.cli.settings import find_place
from holdlog.adapters.cli.store import has_store, is_named, open_to_read
from holdlog.adapters.cli.texts import NEXT_STEP, print_json, show_finding
from holdlog.adapters.compose import open_engine
from holdlog.adapters.hooks.clients import CLIENTS
from holdlog.adapters.hooks.init import Finding, examine, examine_all
from holdlog.adapters.operating_system.location import mask_password
from holdlog.adapters.operations.admin import Diagnose, Rebuild
from holdlog.domain.moment import Caller
from holdlog.domain.refusals import HoldlogError, UnavailableError

EXAMPLES: Final = (
    "doctor",
    "doctor --client claude-code",
    "doctor --rebuild",
    "doctor --db postgresql://ann@db.example/team --json",
)


def run(words: list[str]) -> int:
    parser = Parser("doctor", "Check that the store is sound. It changes nothing, except with --rebuild.", EXAMPLES)
    parser.add_argument("--rebuild", action="store_true", help="rebuild the views of values and claims from the log")
    parser.add_argument("--client", choices=list(CLIENTS), metavar="NAME", help=f"a host: {', '.join(CLIENTS)}")
    options = parser.parse_args(words)
    place = find_place(options.db)
    if options.rebuild:
        with closing(open_to_read(options)) as engine:
            changed = Rebuild().run(engine, Caller()).changed
            print(f"rebuilt: {changed} rows changed")
        return 0
    findings = examine_store(place, is_named(options))
    findings += examine_all() if options.client is None else examine(options.client)
    is_sound = all(level != "bad" for _, level, _ in findings)
    if options.json:
        rows = [{"name": name, "level": level, "text": text} for name, level, text in findings]
        print_json({"store": mask_password(place), "sound": is_sound, "findings": rows})
    else:
        print(f"the store {mask_password(place)}")
        for name, level, text in findings:
            print(show_finding(level, name, text, sys.stdout))
    return 0 if is_sound else 1


def examine_store(place: str, is_required: bool) -> list[Finding]:
    """Findings about a store. Creates and changes no file."""
    if not has_store(place):
        if is_required:
            return [("file", "bad", f"there is no store; {NEXT_STEP}")]
        return [("file", "ok", f"there is no store yet; {NEXT_STEP}")]
    try:
        with closing(open_engine(place, creates=False)) as engine:
            diagnosis = Diagnose().run(engine, Caller())
    except UnavailableError:
        raise
    except HoldlogError as error:
        return [("file", "bad", mask_password(str(error)))]
    return [(finding.name, finding.level, finding.text) for finding in diagnosis.findings]
