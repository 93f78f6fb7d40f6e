"""`python -m holdlog` is the command `holdlog`."""

import sys

from holdlog.adapters.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
