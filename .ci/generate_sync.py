"""Generates the synchronous side of the library from the asynchronous one: `python .ci/generate_sync.py [--check]`.

The asynchronous files are the source. Each generated file starts with a line that names its source; edit the source and
run `make generate`. `--check` writes nothing and exits with 1 if a generated file is not up to date.
"""

import io
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]

FILES = {
    "adapters/runtime/async_calls.py": "adapters/runtime/calls.py",
    "adapters/python/async_changes.py": "adapters/python/changes.py",
    "adapters/python/async_held.py": "adapters/python/held.py",
    "adapters/python/async_past_store.py": "adapters/python/past_store.py",
    "adapters/python/async_store.py": "adapters/python/store.py",
    "adapters/python/state/async_history.py": "adapters/python/state/history.py",
}

NAMES = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "AsyncCalls": "Calls",
    "AsyncEventIterator": "EventIterator",
    "AsyncIterator": "Iterator",
    "AsyncPastStore": "PastStore",
    "AsyncStateStore": "StateStore",
    "asynccontextmanager": "contextmanager",
    "AsyncThreadHistory": "ThreadHistory",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
}
TEXTS = {
    "holdlog.adapters.python.async_held import held_async": "holdlog.adapters.python.held import held",
    "holdlog.adapters.python.async_past_store": "holdlog.adapters.python.past_store",
    "`AsyncStateStore.at`": "`StateStore.at`",
    "asyncio.sleep(": "time.sleep(",
    "import asyncio\n": "import time\n",
    "async with store.": "with store.",
    "`async for event": "`for event",
    "holdlog.adapters.python.async_changes import": "holdlog.adapters.python.changes import",
    "; a cancelled step can be repeated": "",
    "`AsyncStateStore`": "`StateStore`",
    "`AsyncThreadHistory`": "`ThreadHistory`",
    "The calls of coroutines": "The calls of threads",
    "Runs requests for coroutines": "Runs requests for threads",
    "of the library for coroutines": "of the library for threads",
    "        await self.check_async(call.command, caller)\n": "",
    "(command, caller, late)": "(command, caller)",
    "a network, for coroutines": "a network, for threads",
    "The library for coroutines": "The library for threads",
    "For coroutines; closes itself as an asynchronous context": "Thread-safe; closes itself as a context",
    " A cancelled call that has not begun is withdrawn.": "",
}
KEYWORDS = ("async", "await")


def to_sync(source: str) -> str:
    """The same code without `async` and `await`; names that end in `_async` lose that end."""
    for text, replacement in TEXTS.items():
        source = source.replace(text, replacement)
    lines = source.splitlines(keepends=True)
    tokens = [it for it in tokenize.generate_tokens(io.StringIO(source).readline) if it.type == tokenize.NAME]
    for token in reversed(tokens):
        (row, start), (_, end) = token.start, token.end
        line = lines[row - 1]
        if token.string in KEYWORDS:
            lines[row - 1] = line[:start] + line[end:].removeprefix(" ")
        else:
            name = NAMES.get(token.string, token.string.removesuffix("_async"))
            lines[row - 1] = line[:start] + name + line[end:]
    return "".join(lines)


def formatted(code: str, name: str) -> str:
    """As `make fmt` leaves the file."""
    for arguments in (("check", "--select", "I,F401", "--fix-only", "--quiet"), ("format", "--quiet")):
        command = ["ruff", *arguments, "--stdin-filename", name, "-"]
        code = subprocess.run(command, input=code, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return code


def generated(source: str, target: str) -> str:
    header = f"# Generated from {source} by `make generate`. Do not edit.\n"
    return formatted(header + to_sync((ROOT / source).read_text()), target)


def main() -> int:
    stale = [
        (target, code)
        for source, target in FILES.items()
        if (code := generated(source, target)) != ((ROOT / target).read_text() if (ROOT / target).exists() else "")
    ]
    if "--check" in sys.argv[1:]:
        for target, _ in stale:
            print(f"{target} is not up to date: run `make generate`", file=sys.stderr)
        return 1 if stale else 0
    for target, code in stale:
        (ROOT / target).write_text(code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
