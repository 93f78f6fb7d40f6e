"""What a hook pays to write without a server: a whole process that loads the standard library alone.

python bench/hook_write.py STORE     write one value, as a hook would
python bench/hook_write.py           time such processes against Python alone
"""

import sys
from typing import NamedTuple


def write(place: str) -> None:
    from holdlog.adapters.compose import open_engine
    from holdlog.domain import records
    from holdlog.domain.moment import Caller
    from holdlog.domain.values import Json

    class Write(NamedTuple):
        op = "set"
        namespace = "hooks"
        key = "k"
        value = Json('"written by a hook"')
        updated_by = "hook"
        expected_version = ttl_seconds = guard = reason = None
        reads, decide = records.declare_key, records.write

    engine = open_engine(place)
    engine.run(Write(), Caller("session"))  # type: ignore[arg-type]
    engine.close()


def measure(rounds: int = 20) -> None:
    import statistics
    import subprocess
    import tempfile
    import time
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        commands = {"Python alone": ["-c", ""], "write": [__file__, str(Path(folder, "state.db"))]}
        times: dict[str, list[float]] = {name: [] for name in commands}
        for name, arguments in [*commands.items()] * rounds:
            began = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True)
            times[name].append((time.perf_counter() - began) * 1000)
        alone, whole = (statistics.median(times[name]) for name in commands)
        print(f"Python alone {alone:.1f} ms, with a write {whole:.1f} ms: {whole - alone:.1f} ms more")


if __name__ == "__main__":
    write(sys.argv[1]) if sys.argv[1:] else measure()
