"""`holdlog completion`: a script that lets a shell complete commands and options, made from their help."""

import io
import os
import re
from contextlib import redirect_stdout, suppress
from typing import Final

from holdlog.adapters.cli.commands import DERIVED, list_commands, summarize
from holdlog.adapters.cli.derived import build_parser
from holdlog.adapters.cli.parser import Parser

SHELLS: Final = ("bash", "zsh", "fish")
COMMON: Final = ("--db", "--help")
_BASH: Final = """\
_holdlog() {
  local word=${COMP_WORDS[COMP_CWORD]}
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "%s" -- "$word"))
    return
  fi
  case "${COMP_WORDS[1]}" in
%s
  esac
}
complete -o default -F _holdlog holdlog
"""


def run(words: list[str]) -> int:
    examples = (
        "completion bash     save it as ~/.local/share/bash-completion/completions/holdlog",
        "completion zsh      save it as _holdlog in a folder of $fpath",
        "completion fish     save it as ~/.config/fish/completions/holdlog.fish",
    )
    parser = Parser("completion", "Print a script that lets a shell complete commands.", examples, has_json=False)
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")
    shell = parser.parse_args(words).shell
    os.environ.pop("HOLDLOG_AGENT", None)
    options = {name: list_options(name) for name in list_commands()}
    if shell == "fish":
        print("\n".join(_write_fish(options)))
        return 0
    cases = "\n".join(
        f'    {name}) COMPREPLY=($(compgen -W "{" ".join(known)}" -- "$word")) ;;' for name, known in options.items()
    )
    begin = "#compdef holdlog\nautoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    print(begin + _BASH % (" ".join(options), cases), end="")
    return 0


def list_options(name: str) -> list[str]:
    """The options of a command; of those that are not derived, the common ones."""
    text = io.StringIO()
    if name in DERIVED:
        with redirect_stdout(text), suppress(SystemExit):
            build_parser(name).print_help()
    return sorted({*re.findall(r"--[a-z][a-z-]+", text.getvalue()), *COMMON})


def _write_fish(options: dict[str, list[str]]) -> list[str]:
    lines = ["complete -c holdlog -f"]
    for name, known in options.items():
        text = summarize(name).replace("'", "\\'")
        lines.append(f"complete -c holdlog -n __fish_use_subcommand -a {name} -d '{text}'")
        seen = f"'__fish_seen_subcommand_from {name}'"
        lines += [f"complete -c holdlog -n {seen} -l {option.removeprefix('--')}" for option in known]
    return lines
