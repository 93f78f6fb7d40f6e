"""The URIs of MCP resources, as a client makes them of their templates."""

from urllib.parse import quote


def value_uri(namespace: str, key: str) -> str:
    """As RFC 6570 expands the template."""
    return f"state://{quote(namespace, safe='')}/{quote(key, safe='')}"


def claim_uri(resource: str) -> str:
    """As RFC 6570 expands the template."""
    return f"claim://{quote(resource, safe='')}"
