"""`python -m holdlog` is the command `holdlog`. A hook runs without the command line: its host waits for it."""

import gc
import sys


def main() -> int:
    if sys.argv[1:2] == ["hook"]:
        gc.disable()  # a hook allocates mostly modules, which stay until it ends
        if sys.argv[2:3] == ["--url"]:
            from holdlog.adapters.hooks.posting import run_posting

            return run_posting(sys.argv[2:])
        from holdlog.adapters.hooks.running import is_direct, run

        if is_direct(sys.argv[2:]):
            return run(sys.argv[2:])
    from holdlog.adapters.cli.main import main as run_command

    try:
        return run_command()
    except SystemExit:
        if sys.argv[1:2] == ["hook"]:
            return 0  # hosts block the edit on exit code 2, that of wrong arguments
        raise


if __name__ == "__main__":
    sys.exit(main())
