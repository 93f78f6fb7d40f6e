"""Errors of the servers that `holdlog up` starts."""

from typing import ClassVar

from holdlog.domain.refusals import HoldlogError


class ServersError(HoldlogError):
    """A server cannot be started; the message is one line with what to do. It never contains a secret."""

    code: ClassVar[str] = "servers"

    @classmethod
    def not_installed(cls) -> "ServersError":
        """The error for a missing package. It does not depend on the package, because one extra installs all of
        them."""
        return cls("the servers are not installed; pip install 'holdlog[servers]'")
