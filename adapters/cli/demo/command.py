"""`holdlog demo`: real servers and agents, in about ten seconds; everything shown is measured and checked as it
runs."""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from holdlog.adapters.cli.settings import picture_file

if TYPE_CHECKING:
    from holdlog.adapters.cli.parsers import Commands

AGENTS: Final = ("ada", "ben")
SERVER: Final = (sys.executable, "-m", "holdlog")

NEXT_STEPS: Final = """\
uv tool install 'holdlog[mcp] @ git+https://github.com/holdlog/holdlog'
(or, from a copy of the repository: uv tool install 'FOLDER[mcp]')

Then run holdlog init in your project: it sets up your hosts and their hooks.
Or add only the server to .mcp.json by hand:

  {
    "mcpServers": {
      "holdlog": { "command": "holdlog" }
    }
  }

  holdlog --tools all       the same server with the tools for shared values
  holdlog claims            list claims and queues
  holdlog doctor            check the store, and list connected processes"""


def add_demo(commands: "Commands") -> None:
    demo = commands.add_parser(
        "demo",
        help="see two agents work with and without holdlog, in ten seconds",
        description="Start two real servers with a new store in a temporary folder, and show what holdlog is for.",
        epilog="example:\n  holdlog demo --svg demo.svg",
    )
    demo.add_argument(
        "--svg", metavar="FILE", type=picture_file, help="also draw the measurements as a picture (default: no picture)"
    )
    demo.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the demo. 0 when every step succeeded, else 1."""
    return perform(sys.stdout, options.svg)


def perform(out: TextIO, svg: Path | None = None, command: Sequence[str] = SERVER) -> int:
    """Play the demo with servers that `command` starts; returns the exit code. Draws the picture if all steps
    succeeded."""
    os.environ.setdefault("FASTMCP_LOG_ENABLED", "false")
    from holdlog.adapters.cli.demo.screen import Screen
    from holdlog.adapters.cli.drawing.timeline import Timeline

    timeline = Timeline(AGENTS)
    screen = Screen(out, timeline)
    screen.line(screen.paint("bold", "holdlog demo"))

    from holdlog.adapters.cli.demo.agents import Wrong  # about a second: imports the MCP client
    from holdlog.adapters.cli.demo.story import play
    from holdlog.adapters.cli.drawing.picture import picture
    from holdlog.domain.refusals import HoldlogError

    try:
        with tempfile.TemporaryDirectory(prefix="holdlog-demo-") as folder:
            asyncio.run(play(screen, command, Path(folder)))
        if svg is not None:
            svg.write_text(picture(timeline), encoding="utf-8")
    except BrokenPipeError:
        raise
    except (Wrong, HoldlogError, OSError) as error:
        screen.outcome(f"wrong: {error}", good=False)
        return 1
    screen.title("Next")
    for line in NEXT_STEPS.splitlines():
        screen.line(f"   {line}".rstrip())
    if svg is not None:
        screen.line(f"\n   drawn: {svg}")
    return 0
