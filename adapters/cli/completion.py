"""`holdlog completion`: a script that lets a shell complete commands and options, generated from their parser."""

import argparse
import sys
from typing import Final

from holdlog.adapters.cli.parsers import Commands

SHELLS: Final = ("bash", "zsh", "fish")

_EXAMPLES: Final = """\
examples:
  holdlog completion bash     save it as ~/.local/share/bash-completion/completions/holdlog
  holdlog completion zsh      save it as _holdlog in a folder of $fpath
  holdlog completion fish     save it as ~/.config/fish/completions/holdlog.fish
"""


def add_completion(commands: Commands) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a script that lets bash, zsh or fish complete commands and options",
        description="Print a script that lets a shell complete commands and options. Save it where the shell looks\n"
        "for completions, and again after an update of holdlog.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")
    parser.set_defaults(run=run_completion)


def run_completion(options: argparse.Namespace) -> int:
    """Run `holdlog completion`."""
    import shtab

    from holdlog.adapters.cli.main import build_parser

    parser, _ = build_parser()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.help = ""  # hidden in our help text, which lists the commands in groups
            for command in action._choices_actions:
                action.choices[command.dest].description = command.help  # shells show one line
    sys.stdout.write(shtab.complete(parser, options.shell))
    return 0
