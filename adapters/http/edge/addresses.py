"""The address that limits count a request under."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from starlette.types import Scope


def address_of(scope: Scope) -> str:
    """The IPv4 address, or the /64 network of an IPv6 address, because one client can use all 2**64 addresses of its
    network."""
    client = scope.get("client")
    return _network(client[0]) if client else ""


@lru_cache(4096)
def _network(text: str) -> str:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None and not address.is_loopback:
        return str(IPv6Address(int(address) >> 64 << 64))
    return str(address)
