"""The command `holdlog`. A hook runs without the command line, as its host waits for it."""

import sys
from importlib import import_module


def main() -> int:
    if sys.argv[1:2] == ["hook"] and "--help" not in sys.argv:
        return int(import_module("holdlog.adapters.hooks.entry").run(sys.argv[2:]))
    return int(import_module("holdlog.adapters.cli.main").main())


if __name__ == "__main__":
    sys.exit(main())
