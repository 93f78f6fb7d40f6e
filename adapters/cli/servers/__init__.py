"""Runs PostgreSQL and NATS from their wheels, for `holdlog up` and for tests. Both start and stop together."""

from typing import ClassVar

from holdlog.domain.refusals import HoldlogError


class ServersError(HoldlogError):
    """A server cannot be started; the message is one line with what to do. It never contains a secret."""

    code: ClassVar[str] = "servers"
