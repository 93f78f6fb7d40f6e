"""`holdlog doctor --client`: versions that holdlog does not know, and what the settings of a host switch off."""

import json
import os
import stat
from pathlib import Path

import pytest

from holdlog.adapters.cli.setup.hosts import Project
from holdlog.adapters.cli.setup.switched_off import switched_off
from holdlog.adapters.cli.setup.versions import installed_versions, is_known, unknown_versions
from holdlog.adapters.hooks.observed import Observed
from tests.support.command_line import run_command
from tests.support.set_up import set_up


@pytest.fixture
def here(tmp_path: Path) -> Project:
    """A project next to an empty home, with an empty folder on PATH."""
    for name in ("project", "home", "bin"):
        (tmp_path / name).mkdir()
    return Project(tmp_path / "project", tmp_path / "home", "holdlog", {"PATH": str(tmp_path / "bin")})


def lines(name: str, here: Project, path: str, text: str) -> list[str]:
    """What doctor says about a file of the project, or about one of the home: `~/…`."""
    file = here.home / path[2:] if path.startswith("~/") else here.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.replace("ROOT", str(here.root)))
    found = switched_off(name, here)
    assert all(it.level == "bad" for it in found)
    return [it.text for it in found]


CLAUDE, CODEX = ".claude/settings.local.json", "~/.codex/config.toml"


@pytest.mark.parametrize(
    ("name", "path", "text", "says"),
    [
        ("claude-code", CLAUDE, '{"disableAllHooks": true} // mine', "disableAllHooks, so no hook runs"),
        ("claude-code", "~/.claude/settings.json", '{"disableAllHooks": true}', "disableAllHooks"),
        ("claude-code", CLAUDE, '{"disabledMcpjsonServers": ["holdlog"]}', "switches the server holdlog off"),
        ("claude-code", "~/.claude/settings.json", '{"deniedMcpServers": [{"serverName": "holdlog"}]}', "server"),
        ("claude-code", "~/.claude.json", '{"projects": {"ROOT": {"disabledMcpServers": ["holdlog"]}}}', "server"),
        ("claude-code", CLAUDE, '{"permissions": {"deny": ["mcp__holdlog"]}}', "permissions.deny: mcp__holdlog"),
        ("claude-code", CLAUDE, '{"permissions": {"deny": ["mcp__holdlog__*"]}}', "denies the tools"),
        ("claude-code", ".claude/settings.json", '{"permissions": {"deny": ["mcp__*"]}}', "denies the tools"),
        ("codex", CODEX, "[features]\nhooks = false\n", "hooks = false in [features], so no hook runs"),
        ("codex", CODEX, "[features]\ncodex_hooks = false\n", "no hook runs"),
        ("codex", ".codex/config.toml", "[features]\nhooks = false\n", "no hook runs"),
        ("codex", CODEX, '[mcp_servers.holdlog]\ncommand = "holdlog"\nenabled = false\n', "switches the server"),
        ("codex", CODEX, '[mcp_servers.holdlog]\ndisabled_tools = ["holdlog_claim"]\n', "switches the server"),
        ("cursor", ".cursor/mcp.json", '{"mcpServers": {"holdlog": {"disabled": true}}}', "switches the server"),
        ("cursor", ".cursor/cli.json", '{"permissions": {"deny": ["Mcp(holdlog:*)"]}}', "denies the tools"),
        ("opencode", "opencode.json", '{"mcp": {"holdlog": {"enabled": false}}}', "switches the server holdlog off"),
        ("opencode", "opencode.jsonc", '{"mcp": {"servers": {"holdlog": {"disabled": true}}}}', "switches the server"),
        ("opencode", "opencode.json", '{"tools": {"holdlog_*": false}}', "tools of holdlog off (holdlog_*)"),
        ("opencode", "~/.config/opencode/opencode.json", '{"permission": {"holdlog_*": "deny"}}', "tools of holdlog"),
        ("opencode", "opencode.json", '{"permissions": [{"action": "*", "effect": "deny"}]}', "tools of holdlog off"),
        ("opencode", "opencode.json", '{"plugins": ["-holdlog"]}', "so the plugin does not run"),
        ("opencode", ".opencode/opencode.json", '{"plugins": ["./a.ts", "-*"]}', "so the plugin does not run"),
    ],
)
def test_hooks_and_servers_that_settings_switch_off_are_reported(
    name: str, path: str, text: str, says: str, here: Project
) -> None:
    (line,) = lines(name, here, path, text)
    assert says in line


@pytest.mark.parametrize(
    ("name", "path", "text"),
    [
        ("claude-code", CLAUDE, '{"disableAllHooks": false, "disabledMcpjsonServers": ["other"]}'),
        (
            "claude-code",
            CLAUDE,
            '{"permissions": {"deny": ["mcp__other", "Read(.env)", 5], "allow": ["mcp__holdlog"]}}',
        ),
        ("claude-code", CLAUDE, '{"disableAllHooks": "no", "permissions": [], "deniedMcpServers": {}}'),
        ("claude-code", CLAUDE, "{"),
        ("codex", CODEX, "[features]\nhooks = true\n[mcp_servers.holdlog]\nenabled = true\n"),
        ("codex", CODEX, "features = 5\nhooks = []\n"),
        ("cursor", ".cursor/mcp.json", '{"mcpServers": {"holdlog": {"command": "holdlog"}}}'),
        ("opencode", "opencode.json", '{"mcp": {"holdlog": {"enabled": true}}, "tools": {"bash": false}}'),
        ("opencode", "opencode.json", '{"permissions": [{"action": "*", "effect": "deny", "resource": "*.env"}]}'),
        ("opencode", "opencode.json", '{"tools": {"*": false, "holdlog_*": true}, "plugins": ["-*", "holdlog"]}'),
        ("vscode", ".vscode/mcp.json", '{"servers": {}}'),
    ],
)
def test_settings_that_switch_nothing_of_ours_off_are_not_reported(
    name: str, path: str, text: str, here: Project
) -> None:
    assert lines(name, here, path, text) == []


def test_setting_of_the_project_comes_before_that_of_the_user(here: Project) -> None:
    lines("claude-code", here, "~/.claude/settings.json", '{"disableAllHooks": true}')
    assert lines("claude-code", here, CLAUDE, '{"disableAllHooks": false}') == []


def test_hooks_that_codex_does_not_trust_are_reported(here: Project) -> None:
    (here.root / ".codex").mkdir()
    (here.root / ".codex" / "hooks.json").write_text("{}")
    trusted = '[hooks.state."ROOT/.codex/hooks.json:pre_tool_use:0:0"]\ntrusted_hash = "sha256:a"\n'
    assert lines("codex", here, CODEX, trusted) == []
    assert "enabled = false for" in lines("codex", here, CODEX, trusted + "enabled = false\n")[0]
    (line,) = lines("codex", here, CODEX, trusted.replace("ROOT", "/elsewhere"))
    assert line.endswith("trust them in Codex: /hooks")
    (line,) = lines("codex", here, CODEX, '[projects."ROOT"]\ntrust_level = "untrusted"\n')
    assert "does not trust" in line


def test_plugins_that_the_environment_switches_off_are_reported(here: Project) -> None:
    assert switched_off("opencode", here) == []
    (found,) = switched_off("opencode", here._replace(environ={"OPENCODE_PURE": "1"}))
    assert "no plugin runs" in found.text


@pytest.mark.parametrize(
    ("name", "version", "known"),
    [
        ("claude-code", "2.1.332", True),
        ("claude-code", "1.0.84", False),
        ("claude-code", "3.0.0", False),
        ("codex", "0.160.0", True),
        ("codex", "0.99.0", False),
        ("cursor", "2.4", True),
        ("cursor", "2026.09.15", True),
        ("cursor", "1.7.2", False),
        ("opencode", "1.18.28", False),
        ("opencode", "1.18.29", True),
        ("opencode", "2.0.6", False),
        ("opencode", "2.2.6", True),
        ("opencode", "3.0.0-beta.1", False),
        ("vscode", "1.120.0", False),
    ],
)
def test_version_of_a_host_is_known_or_not(name: str, version: str, known: bool) -> None:
    assert is_known(name, version) == known


def program(folder: Path, name: str, prints: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' '{prints}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_version_of_a_host_is_that_of_its_programs_and_the_last_one_seen(here: Project) -> None:
    folder = Path(here.environ["PATH"])
    program(folder, "claude", "2.1.319 (Claude Code)")
    program(folder, "codex", "codex-cli 0.160.0")
    program(folder, "opencode", "error: no version")
    program(folder, "opencode2", "3.0.1")
    assert [installed_versions(it, here) for it in ("claude-code", "codex", "opencode", "cursor")] == [
        ["2.1.319"],
        ["0.160.0"],
        ["3.0.1"],
        [],
    ]
    (found,) = unknown_versions("opencode", "opencode", here, {})
    assert found.level == "bad"
    assert found.text.startswith("not guarded: holdlog does not know how to guard OpenCode 3.0.1; it knows 1.18.29 to")
    assert list(unknown_versions("claude-code", "claude", here, {"claude 2.1.319": Observed()})) == []
    (found,) = unknown_versions("claude-code", "claude", here, {"claude 3.0.0": Observed()})
    assert "Claude Code 3.0.0" in found.text
    assert list(unknown_versions("claude-code", "claude", here, {"claude 3.0.0": Observed(guarded="now")})) == []


@pytest.mark.check
def test_last_line_of_doctor_is_never_a_tick_if_a_host_is_not_guarded(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up("claude-code")
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", "claude", "9.0.0 (Claude Code)")
    monkeypatch.setenv("PATH", os.pathsep.join((str(tmp_path / "bin"), os.environ["PATH"])))
    (project / ".claude" / "settings.json").write_text('{"disableAllHooks": true}')
    (project / ".git" / "holdlog" / "state.db.hooks").mkdir(exist_ok=True, mode=0o700)
    seen = {"claude 2.1.319": {"guarded": "2026-11-27T10:00:00Z", "bypassed": None}}
    (project / ".git" / "holdlog" / "state.db.hooks" / "clients.json").write_text(json.dumps(seen))
    code, out, _ = run_command(capsys, "doctor", "--client", "claude-code")
    *found, last = out.splitlines()
    assert code == 1
    assert any("Claude Code 9.0.0" in it for it in found)
    assert any("disableAllHooks" in it for it in found)
    assert found[-1].startswith("✓ guard")
    assert last.startswith("✗ result")
    assert "not guarded as it should be: 2 of the lines above say what is wrong" in last
