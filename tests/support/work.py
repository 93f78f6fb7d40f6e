"""What the processes of workers.py do: `python work.py NAME ARGUMENTS…`. Every acknowledged call is a line of JSON."""

import itertools
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import holdlog

FIELDS = (
    *("status", "version", "value", "held_by", "granted_to", "previous_outcome", "previous_holder", "ticket", "lost"),
    *("expires_in_seconds", "same_name", "holder_note", "queue_length"),
)
Facts = dict[str, Any]
CLAIMS = hasattr(holdlog.StateStore, "claim")
"""Whether claims exist already (issue 35): until then these processes leave them out."""


by: Facts = {}
"""Which of `several` speaks."""


def say(**facts: Any) -> None:
    """In one system call, so that a killed process leaves no half line between whole ones."""
    os.write(1, (json.dumps(by | facts, default=str) + "\n").encode())


def hear() -> str:
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    return line.strip()


def attempt(call: Callable[[], Any]) -> Facts:
    """Its result or refusal. Any other exception is `raw`: no caller may see one."""
    try:
        result = call()
    except holdlog.HoldlogError as error:
        facts = {"error": type(error).__name__, "message": str(error), "in_doubt": getattr(error, "in_doubt", False)}
        return facts | {"retry_after": getattr(error, "retry_after", None)}
    except BaseException as error:
        return {"error": type(error).__name__, "message": str(error), "raw": True}
    return {name: getattr(result, name) for name in FIELDS if getattr(result, name, None) is not None}


def serve(place: str, session: str | None = None) -> None:
    """Make the calls that stdin tells: a method, its arguments and its options as JSON. One with `begins` is confirmed
    before it is made, as it may block. A block `claimed` stays open."""
    blocks = ExitStack()
    with holdlog.StateStore(place, session=session) as store:
        say(ready=True)
        while True:
            method, arguments, options, begins = json.loads(hear())
            if begins:
                say(begun=True)
            call = partial(getattr(store, method), *arguments, **options)
            say(**attempt(partial(blocks.enter_context, call()) if method == "claimed" else call))


def story(path: str, name: str = "") -> None:
    """One call of each kind, on a handle of its own, under values that no other run writes."""
    run = name or str(os.getpid())
    opened: list[Any] = []
    facts = attempt(lambda: opened.append(holdlog.StateStore(path)))
    if facts:
        return say(opening=facts)
    store = opened[0]

    def put(key: str, call: Callable[[], Any], value: Any, **more: Any) -> Facts:
        facts = {"key": key, "tried": value, **more, **attempt(call)}
        say(**facts)
        return facts

    put("k", lambda: store.set("n", "k", run, updated_by=run, request_id=f"{run}-k"), run, request_id=f"{run}-k")
    put("counter", lambda: store.update("n", "counter", increment=1, updated_by=run), None)
    both = [{"op": "set", "namespace": "n", "key": key, "value": run} for key in ("a", "b")]
    put("both", lambda: store.transact(both, updated_by=run), run)
    mine = f"{run}.md"
    claim = attempt(lambda: store.claim(mine, agent="worker")) if CLAIMS else {}
    if CLAIMS:
        say(claim=claim, resource=mine)
    if claim.get("status") == "claimed":
        guard = [{"resource": mine, "version": claim["version"]}]
        put("g", lambda: store.set("n", "g", run, updated_by="worker", guard=guard), run)
        say(release=attempt(lambda: store.release(mine, agent="worker")), resource=mine)
    put("k", lambda: store.delete("n", "k", deleted_by=run), None)
    say(closing=attempt(store.close))
    return None


def warm_up() -> None:
    """Load all modules, before a process forks others."""
    with tempfile.TemporaryDirectory() as elsewhere, open(os.devnull, "wb") as unheard:
        before = os.dup(1)
        os.dup2(unheard.fileno(), 1)
        story(os.path.join(os.path.realpath(elsewhere), "state.db"))
        os.dup2(before, 1)
        os.close(before)


def forks(path: str) -> None:
    """For each line of stdin a child that is the story; its pid before, its wait status after."""
    warm_up()
    say(ready=True)
    while True:
        name = hear()
        waits, goes = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(waits, 1)
            story(path, name)
            os._exit(0)
        say(child=child)
        os.write(goes, b"g")
        say(exit=os.waitpid(child, 0)[1])
        os.close(waits)
        os.close(goes)


def several(times: str, name: str, *arguments: str) -> None:
    """So many children that each run a function with these arguments and their number, once stdin has a byte each."""
    warm_up()
    for number in range(int(times)):
        if os.fork() == 0:
            by["who"] = number
            globals()[name](*arguments, str(number))
            os._exit(0)
    for _ in range(int(times)):
        say(exit=os.wait()[1])


def wait_for_others() -> None:
    say(ready=True, pid=os.getpid())
    os.read(0, 1)


def load(place: str, name: str, burst: str) -> None:
    """For each line of stdin so many rounds in each of two threads: own keys, a shared key, deletions, claims."""
    store = holdlog.StateStore(place)
    rounds = threading.Semaphore(0)
    say(ready=True)

    def run(mine: str, number: int) -> None:
        key = random.choice([mine, "shared", f"{mine}-{number % 7}"])
        value = {"by": mine, "number": number, "text": "x" * random.choice([10, 10, 10, 3000])}
        written = store.set("n", key, value, updated_by=mine)
        say(key=key, version=written.version, value=value)
        if number % 5 == 0:
            with suppress(holdlog.ConflictError, holdlog.NotFoundError):
                deleted = store.delete("n", key, deleted_by=mine, expected_version=written.version)
                say(key=key, version=deleted.version, value=None)
        if CLAIMS and number % 3 == 0 and store.claim("src/", agent=mine):
            store.release("src/", agent=mine)

    def second() -> None:
        for number in itertools.count():
            rounds.acquire()
            run(name + "-b", number)

    threading.Thread(target=second, daemon=True).start()
    for number in itertools.count():
        if number % int(burst) == 0:
            hear()
        rounds.release()
        run(name + "-a", number)


def journal(path: str, times: str, size: str) -> None:
    """Writes whose acknowledgements go to a file, which faults.c notes between the calls of the store."""
    acknowledged = os.open(os.path.join(os.path.dirname(path), "acknowledged"), os.O_WRONLY | os.O_CREAT)
    store = holdlog.StateStore(path)

    def run(key: str) -> None:
        for number in range(int(times)):
            value = f"{key}-{number}" + "x" * int(size)
            version = store.set("n", key, value, updated_by="worker").version
            os.write(acknowledged, json.dumps([key, version, number]).encode() + b"\n")

    threads = [threading.Thread(target=run, args=(key,)) for key in ("p", "q")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    say(closed=True)


def count(place: str, times: str, number: str) -> None:
    """Add one to a shared number and to one of its own, so many times."""
    key = f"own-{number}"
    with holdlog.StateStore(place) as store:
        wait_for_others()
        for _ in range(int(times)):
            store.update("n", "shared", lambda value: (value or 0) + 1, updated_by=key)
            store.update("n", key, updated_by=key, increment=1)
        say(done=True)


def calls_of_one_key(place: str, times: str, seed: str) -> None:
    """Random calls of one key; of each the time before and after it, by a clock that all processes share."""
    dice, version = random.Random(), 0
    with holdlog.StateStore(place) as store:
        wait_for_others()
        for number in range(int(times)):
            value = f"{seed}-{number}"
            name = dice.choice(("get", "get", "set", "compare", "compare", "delete"))
            expected = version if name == "compare" else None
            call = {
                "get": lambda: store.get("n", "k"),
                "delete": lambda: store.delete("n", "k", deleted_by=seed),
            }.get(name, lambda: store.set("n", "k", value, updated_by=seed, expected_version=expected))  # noqa: B023
            facts = {"call": name, "tried": value, "expected": expected}
            say(**facts, began=time.monotonic_ns())
            done = attempt(call)
            say(**facts, ended=time.monotonic_ns(), **done)
            version = done.get("version", version)


def interrupted(path: str, times: str) -> None:
    """Write while a timer interrupts this thread within holdlog, again and again; other threads write, too."""
    ours = os.path.dirname(holdlog.__file__)
    struck = 0

    def strike(_: int, frame: Any) -> None:
        nonlocal struck
        if frame.f_code.co_filename.startswith(ours):
            struck += 1
            raise KeyboardInterrupt

    def run(key: str) -> None:
        for number in range(int(times)):
            say(key=key, tried=number, **attempt(lambda: store.set("n", key, number, updated_by=key)))  # noqa: B023

    signal.signal(signal.SIGALRM, strike)
    with holdlog.StateStore(path) as store:
        threads = [threading.Thread(target=run, args=(f"t{number}",)) for number in range(2)]
        for thread in threads:
            thread.start()
        for number in range(int(times)):
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00001, 0.001))
            facts = attempt(lambda: store.set("n", "main", number, updated_by="main"))  # noqa: B023
            signal.setitimer(signal.ITIMER_REAL, 0)
            say(key="main", tried=number, **facts)
        for thread in threads:
            thread.join()
    say(struck=struck)


def interrupted_blocks(path: str, times: str) -> None:
    """Enter and leave blocks while a timer interrupts this thread within holdlog; each time what is held afterwards."""
    ours = os.path.dirname(holdlog.__file__)

    def strike(_: int, frame: Any) -> None:
        if frame.f_code.co_filename.startswith(ours):
            raise KeyboardInterrupt

    def run(agent: str) -> None:
        with store.claimed("a.md", agent=agent):
            pass

    signal.signal(signal.SIGALRM, strike)
    with holdlog.StateStore(path) as store:
        for number in range(int(times)):
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.003))
            facts = attempt(lambda: run(f"w{number % 10}"))  # noqa: B023
            signal.setitimer(signal.ITIMER_REAL, 0)
            say(**facts, holder=store.status("a.md").status)


def fork(path: str, how: str) -> None:
    """Use a store in a forked child: `used` calls the parent's handle, `opened` makes one of its own."""
    store = holdlog.StateStore(path)
    store.set("n", "k", "parent", updated_by="parent")
    child = os.fork()
    if child == 0:
        if how == "used":
            say(set=attempt(lambda: store.set("n", "k", "child", updated_by="child")))
            say(get=attempt(lambda: store.get("n", "k")))
            say(watch=attempt(lambda: store.watch("n", "k", 1, timeout_seconds=5)))
            if CLAIMS:
                say(claim=attempt(lambda: store.claim("a.md", agent="child")))
                say(wait=attempt(lambda: store.wait("a.md", 5)))
            attempt(store.close)
        else:
            say(open=attempt(lambda: holdlog.StateStore(path)))
        os._exit(0)
    say(code=os.waitpid(child, 0)[1])
    say(parent=attempt(lambda: store.set("n", "k", "again", updated_by="parent")))
    store.close()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
