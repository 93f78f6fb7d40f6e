"""Links and commands that add the server to a host, without hooks."""

import json
from base64 import b64encode
from typing import Any, Final
from urllib.parse import quote, urlencode

from deploy.packages.hosts import server
from deploy.packages.project import NAME

COMMAND: Final = " ".join([server()["command"], *server()["args"]])
COMMANDS: Final = (
    f"claude mcp add --scope project {NAME} -- {COMMAND}",
    f"codex mcp add {NAME} -- {COMMAND}",
)


def cursor_link() -> str:
    """https://cursor.com/docs/mcp/install-links"""
    config = b64encode(_json(server()).encode()).decode()
    return f"cursor://anysphere.cursor-deeplink/mcp/install?{urlencode({'name': NAME, 'config': config})}"


def vscode_link() -> str:
    """VS Code, "MCP developer guide": `vscode:mcp/install?` and the configuration, encoded."""
    return f"vscode:mcp/install?{quote(_json(_vscode()), safe='')}"


def vscode_web_link() -> str:
    """The same, where only links to the web are allowed."""
    config = _json({"type": "stdio", **server()})
    return f"https://vscode.dev/redirect/mcp/install?{urlencode({'name': NAME, 'config': config}, quote_via=quote)}"


def install_page() -> str:
    links = {"Cursor": cursor_link(), "VS Code": vscode_link(), "VS Code, from a web page": vscode_web_link()}
    shown = "\n".join(f"* {name}: `{link}`" for name, link in links.items())
    commands = "\n".join((*COMMANDS, f"code --add-mcp '{_json(_vscode())}'"))
    return f"# Install {NAME} in a host\n\n{shown}\n\n```console\n{commands}\n```\n"


def _vscode() -> dict[str, Any]:
    return {"name": NAME, "type": "stdio", **server()}


def _json(given: dict[str, Any]) -> str:
    return json.dumps(given, separators=(",", ":"))
