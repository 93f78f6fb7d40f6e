"""`holdlog` with its arguments behind a file's name: SIGUSR1 writes there what is alive in the process, as JSON."""

import asyncio
import gc
import json
import signal
import sys
from pathlib import Path


def main() -> None:
    from holdlog.adapters.cli.main import main as holdlog
    from holdlog.adapters.mcp.http.sessions import HttpSession

    place = Path(sys.argv.pop(1))

    def tell(*_: object) -> None:
        gc.collect()
        alive = gc.get_objects()
        counts = {
            "tasks": sum(isinstance(it, asyncio.Task) and not it.done() for it in alive),
            "sessions": sum(isinstance(it, HttpSession) for it in alive),
        }
        del alive
        part = place.with_suffix(".part")
        part.write_text(json.dumps(counts))
        part.replace(place)

    signal.signal(signal.SIGUSR1, tell)
    sys.exit(holdlog())


if __name__ == "__main__":
    main()
