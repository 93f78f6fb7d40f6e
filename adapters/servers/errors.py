"""What can be wrong with servers of our own."""

from typing import ClassVar

from holdlog.domain.refusals import HoldlogError


class ServersError(HoldlogError):
    """A server cannot be started; the message is one line that says what to do. Never holds a secret."""

    code: ClassVar[str] = "servers"
