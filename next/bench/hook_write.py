"""What a hook pays to write without a server: a whole process that loads the standard library alone.

python bench/hook_write.py KIND STORE    write a value or claim a file, as a hook would
python bench/hook_write.py               time such processes against Python alone
"""

import gc
import os
import sys
from typing import Any, NamedTuple


def write(kind: str, place: str) -> None:
    """An entry of hooks must do the same about garbage: what the imports have made is not worth a look."""
    gc.disable()
    from holdlog.adapters.compose import open_engine
    from holdlog.adapters.operating_system.processes import identify_host
    from holdlog.domain.moment import Caller

    engine = open_engine(place)
    assert engine.run(_make(kind), Caller("conversation", host=identify_host()))
    engine.close()
    gc.freeze()


def _make(kind: str) -> Any:
    if kind == "claim":
        from holdlog.domain.claims.commands import Acquire

        return Acquire(f"src/{os.getpid()}.py", "claude")
    from holdlog.domain import records
    from holdlog.domain.values import Json

    class Write(NamedTuple):
        op = "set"
        namespace = "hooks"
        key = "k"
        value = Json('"written by a hook"')
        updated_by = "claude"
        expected_version = ttl_seconds = guard = reason = None
        reads, decide = records.declare_key, records.write

    return Write()


def measure(rounds: int = 40) -> None:
    import statistics
    import subprocess
    import tempfile
    import time

    with tempfile.TemporaryDirectory() as folder:
        commands = {"Python alone": ["-c", ""]}
        commands |= {kind: [__file__, kind, f"{folder}/state.db"] for kind in ("value", "claim")}
        times: dict[str, list[float]] = {name: [] for name in commands}
        for name, arguments in [*commands.items()] * rounds:
            began = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True)
            times[name].append((time.perf_counter() - began) * 1000)
    alone, value, claim = (statistics.median(times[name]) for name in commands)
    print(f"Python alone {alone:.1f} ms; a value takes {value - alone:.1f} ms more, a claim {claim - alone:.1f}")


if __name__ == "__main__":
    write(*sys.argv[1:]) if sys.argv[1:] else measure()
