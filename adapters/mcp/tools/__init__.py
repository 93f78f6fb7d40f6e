"""The tools, by group."""

from collections.abc import Mapping
from typing import Final

from holdlog.adapters.mcp.tools.claims import AdminTools, ClaimTools
from holdlog.adapters.mcp.tools.group import ToolGroup
from holdlog.adapters.mcp.tools.kv import KeyValueTools
from holdlog.adapters.mcp.tools.power import PowerTools
from holdlog.adapters.mcp.tools.threads import ThreadTools
from holdlog.adapters.mcp.tools.values import ValueTools

TOOLS: Final[Mapping[str, type[ToolGroup]]] = {
    "claims": ClaimTools,
    "state": ValueTools,
    "power": PowerTools,
    "kv": KeyValueTools,
    "threads": ThreadTools,
    "admin": AdminTools,
}
