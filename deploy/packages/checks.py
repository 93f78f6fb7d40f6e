"""Checks of built packages. Each function returns what is wrong, one line a finding."""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from deploy.packages import formats
from deploy.packages.contents import REGISTRY_NAME
from deploy.packages.project import NAME, ROOT, VERSION
from holdlog.adapters.cli.main import build_parser
from holdlog.adapters.hooks.calls import parse

FORMATS: Final[Mapping[str, type[BaseModel]]] = {
    "claude-code/.claude-plugin/plugin.json": formats.Manifest,
    "claude-code/.claude-plugin/marketplace.json": formats.Marketplace,
    "claude-code/.mcp.json": formats.Servers,
    "claude-code/hooks/hooks.json": formats.Hooks,
    "agent-plugin/plugin.json": formats.AgentPlugin,
    "agent-plugin/mcp.json": formats.AgentServers,
    "codex/.codex/config.toml": formats.CodexConfig,
    "codex/.codex/hooks.json": formats.Hooks,
    "cursor/.cursor/mcp.json": formats.Servers,
    "cursor/.cursor/hooks.json": formats.CursorHooks,
    "server.json": formats.RegistryEntry,
}


IGNORED: Final = {"beforeReadFile"}
"""Events for which `holdlog init` writes hooks, and which `holdlog hook` does not use yet."""


def findings(folder: Path) -> list[str]:
    """What is wrong with the packages in a folder; empty if nothing is."""
    found = [*_wrong_formats(folder)]
    if found:
        return found  # the other checks read these files
    return [
        *_wrong_commands(folder),
        *_wrong_events(folder),
        *_wrong_versions(folder),
        *_wrong_skills(folder),
        *_wrong_marker(),
        *_refused_by_claude(folder),
    ]


def read(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)


def values(given: Any, key: str) -> Iterator[Any]:
    """All values under a key, at any depth."""
    for name, value in (
        given.items() if isinstance(given, dict) else enumerate(given) if isinstance(given, list) else ()
    ):
        if name == key:
            yield value
        yield from values(value, key)


def _wrong_formats(folder: Path) -> Iterator[str]:
    built = {it.relative_to(folder).as_posix() for suffix in ("json", "toml") for it in folder.rglob(f"*.{suffix}")}
    yield from (
        f"{path}: there is no format for it in deploy/packages/formats.py" for path in sorted(built - {*FORMATS})
    )
    yield from (f"{path}: is missing" for path in sorted({*FORMATS} - built))
    for path in sorted(built & {*FORMATS}):
        try:
            FORMATS[path].model_validate(read(folder / path))
        except ValidationError as error:
            for it in error.errors():
                yield f"{path}: {'.'.join(map(str, it['loc']))}: {it['msg']}"


def _wrong_commands(folder: Path) -> Iterator[str]:
    """Each command is ours, and the command line accepts it; without arguments it starts the server."""
    parser, names = build_parser()
    for path in FORMATS:
        given = read(folder / path)
        arguments = next(values(given, "args"), [])
        for command in values(given, "command"):
            program, *words = [*shlex.split(command), *arguments]
            if program != NAME:
                yield f"{path}: {command}: must start {NAME}"
            elif not _is_accepted(parser, words if names.intersection(words) else [*words, "serve"]):
                yield f"{path}: {command}: the command line refuses it"


def _is_accepted(parser: Any, words: list[str]) -> bool:
    try:
        parser.parse_args(words)
    except SystemExit:
        return False
    return True


def _wrong_events(folder: Path) -> Iterator[str]:
    """`holdlog hook` does something for each event that calls it."""
    for path in FORMATS:
        for event in next(values(read(folder / path), "hooks"), {}):
            if event not in IGNORED and parse({"hook_event_name": event, "session_id": "s"}, None) is None:
                yield f"{path}: {event}: holdlog hook ignores this event"


def _wrong_versions(folder: Path) -> Iterator[str]:
    for path in FORMATS:
        for version in values(read(folder / path), "version"):
            if version not in (VERSION, 1):  # 1: of the format of Cursor's hooks
                yield f"{path}: the version is {version}, but that of pyproject.toml is {VERSION}"


def _wrong_skills(folder: Path) -> Iterator[str]:
    """A skill has the name of its folder, and says when to use it."""
    skills = sorted(folder.rglob("SKILL.md"))
    if not skills:
        yield "there is no skill"
    for skill in skills:
        head = dict(re.findall(r"^(\w+): (.+)$", skill.read_text(encoding="utf-8").split("---\n")[1], re.MULTILINE))
        shown = skill.relative_to(folder).as_posix()
        if head.get("name") != skill.parent.name:
            yield f"{shown}: the name must be that of its folder, {skill.parent.name}"
        if not 1 <= len(head.get("description", "")) <= 1024:
            yield f"{shown}: the description must have 1 to 1024 characters"


def _wrong_marker() -> Iterator[str]:
    """The registry publishes a package only if the text of its page names the entry."""
    if f"<!-- mcp-name: {REGISTRY_NAME} -->" not in (ROOT / "README.md").read_text(encoding="utf-8"):
        yield f"README.md: must contain <!-- mcp-name: {REGISTRY_NAME} -->"


def _refused_by_claude(folder: Path) -> Iterator[str]:
    """What Claude Code itself says, where it is installed."""
    claude = shutil.which("claude")
    manifests = sorted((folder / "claude-code/.claude-plugin").iterdir()) if claude else []
    for manifest in manifests:  # of the plugin it also reads hooks and skills
        command = [str(claude), "plugin", "validate", "--strict", str(manifest)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            yield f"{manifest.name}: claude plugin validate: {(done.stdout + done.stderr).strip()}"
