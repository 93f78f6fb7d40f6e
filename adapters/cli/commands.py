"""All commands: those that are derived from operations, and what `--help` says of the others."""

from importlib import import_module
from typing import Final, NamedTuple

from holdlog.adapters.cli.main import BY_HAND
from holdlog.adapters.cli.parser import Parser
from holdlog.adapters.operations.base import OPERATIONS, Operation


class Derived(NamedTuple):
    """The operation of a command, and the module that declares it. `positional`: the positional arguments, if
    they differ from those of the library. `without`: fields that get no option."""

    module: str
    operation: str
    examples: tuple[str, ...]
    positional: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()

    def find(self) -> type[Operation]:
        return find_operation(self.module, self.operation)


def find_operation(module: str, name: str) -> type[Operation]:
    """Importing all operations takes as long as a whole `get`."""
    import_module(f"holdlog.adapters.operations.{module}")
    return OPERATIONS[name]


def describe_operation(kind: type[Operation]) -> str:
    """What an operation does, for people: its text is for agents, who call `get()`."""
    text = " ".join((kind.__doc__ or "").split()).replace("()", "")
    for argument, option in _ARGUMENTS.items():
        text = text.replace(argument, option)
    return text


_ARGUMENTS: Final = {
    "wait_seconds": "--wait",
    "expected_version": "--version",
    "since_version": "--since",
    "dry_run": "--dry-run",
    "moment is a position": "MOMENT is a position",
}
DERIVED: Final = {
    "get": Derived("values", "get", ("get campaign budget",)),
    "set": Derived("values", "set", ("set campaign budget 2000 --version 1 --reason 'ads for May'",)),
    "update": Derived(
        "values", "update", ("update stats visits --increment 1", "update stats tags --append '\"new\"' --unique")
    ),
    "delete": Derived("values", "delete", ("delete campaign budget --version 2",)),
    "clear": Derived("values", "clear_namespace", ("clear campaign",)),
    "list": Derived("values", "list", ("list", "list campaign --prefix bud")),
    "history": Derived("values", "history", ("history order-1 status", "history src/parser.py"), ("namespace", "key")),
    "transact": Derived(
        "values",
        "transact",
        (
            "transact steps.json",
            """transact - <<< '[{"op": "increment", "namespace": "stats", "key": "visits", "by": 1}]'""",
        ),
    ),
    "watch": Derived("values", "watch", ("watch campaign budget --since 2 --timeout 30",), ("namespace", "key")),
    "claims": Derived("claims", "status", ("claims --agent claude", "claims --dirty"), (), ("resource", "version")),
    "claim": Derived(
        "claims", "claim", ("claim src/parser.py --note 'renaming parse()'", "claim custom://merge --wait 30")
    ),
    "release": Derived("claims", "release", ("release src/parser.py --outcome modified --note 'renamed parse()'",)),
    "status": Derived("claims", "status", ("status src/parser.py", "status"), ("resource",)),
    "wait": Derived("claims", "wait", ("wait src/parser.py --timeout 30",), ("resource",)),
    "at": Derived("past", "at", ("at 14:03", "at 14:03 order-1", "at v3 order-1 status")),
    "blame": Derived("changes", "blame", ("blame order-1 status", "blame src/parser.py")),
    "diff": Derived(
        "changes", "diff", ("diff 14:03 now order-1", "diff v1 v3 order-1 status"), ("start", "end", "namespace", "key")
    ),
    "revert": Derived("changes", "revert", ("revert --session build-7 --dry-run",)),
    "replay": Derived("past", "replay", ("replay 10 20", "replay 14:03 now")),
    "verify": Derived("admin", "verify", ("verify", "verify --checkpoint kept.txt"), ()),
    "checkpoint": Derived("admin", "checkpoint", ("checkpoint >> kept.txt",)),
    "redact": Derived(
        "admin",
        "redact",
        ("redact record:order-1/card@3 --reason 'a card number'", "redact --older-than 30d --reason retention"),
    ),
    "backup": Derived("transfer", "backup", ("backup /var/backups",)),
}
OF_RESOURCE: Final = {"history": ("past", "resource_history"), "blame": ("changes", "blame")}
"""Commands that take NAMESPACE KEY or one RESOURCE: the operation that reads a resource."""
GROUPS: Final = {
    "begin here": ("init", "demo"),
    "work with claims": ("claims", "claim", "release", "status", "wait", "run", "check", "commit"),
    "work with values": ("get", "set", "update", "transact", "delete", "clear", "list", "history", "watch"),
    "work with threads": ("thread",),
    "see and undo changes": ("log", "at", "replay", "diff", "blame", "revert"),
    "audit and administration": ("verify", "checkpoint", "redact", "doctor", "token"),
    "servers and stores": ("serve", "hook", "relay", "subscribe", "export", "import", "backup", "completion"),
}
EPILOG: Final = """\
examples:
  holdlog                                       serve MCP over stdio, with the store of this git repository
  holdlog claim src/parser.py --note 'renaming parse()'
  holdlog run --claim custom://merge --wait 600 -- git push origin main
  holdlog set order-1 status '"paid"' --version 0
  holdlog log --last 20                         the last 20 events
  holdlog at 14:03                              what was claimed at 14:03
  holdlog --db 'postgresql://ann@db.example/team' claims

holdlog COMMAND --help describes a command. Each option of serve is also an environment variable: HOLDLOG_DB,
HOLDLOG_TOOLS … HOLDLOG_AGENT and HOLDLOG_SESSION name the caller of a command.
Exit codes: 0 done; 1 refused, not found or timed out; 2 bad arguments or settings.
"""


def list_commands() -> list[str]:
    return [name for names in GROUPS.values() for name in names]


def print_help() -> int:
    print("usage: holdlog [--db PATH|URL] COMMAND …\n")
    print("holdlog is a coordination store for AI agents: versioned shared values, and claims (leases) on files or any")
    print("named resource. Every change is an event in one log.\n")
    for title, names in GROUPS.items():
        print(f"{title}:")
        for name in names:
            print(f"  {name:<12}{summarize(name)}")
        print()
    print(EPILOG, end="")
    return 0


def summarize(name: str) -> str:
    """The first clause of what a command does."""
    if name == "claims":
        return "list claims and queues"
    if name not in DERIVED:
        return BY_HAND[name][1]
    text = describe_operation(DERIVED[name].find()).partition(". ")[0].partition(": ")[0].partition(", which")[0]
    return text[0].lower() + text[1:].removesuffix(".")


def print_hook_help(words: list[str]) -> int:
    """Hooks run without the command line; this is for those who ask."""
    examples = ("hook < call.json", "hook pre-edit < paths.json")
    text = "Guard an edit: a host passes its call on standard input. holdlog init writes the hooks of a host."
    parser = Parser("hook", text, examples, has_json=False)
    parser.add_argument("event", nargs="?", metavar="EVENT", help="if the input does not name it, such as pre-edit")
    parser.print_help()
    return 0
