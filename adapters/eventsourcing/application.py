"""The library's `Application` over an existing log, for read models."""

from typing import Any, NoReturn

from eventsourcing.application import Application
from eventsourcing.persistence import NotSupportedError
from eventsourcing.utils import Environment, EnvType

from holdlog.adapters.eventsourcing.infrastructure import HoldlogFactory
from holdlog.adapters.eventsourcing.mapper import READ_ONLY


class HoldlogApplication(Application[str]):
    """The log of the store that `HOLDLOG_DB` names, for the library's `ProjectionRunner`. It never changes the log.

    The `name` of an instance, under which views track it, contains the id of the store: each store is tracked
    separately. Raises as `HoldlogFactory`.
    """

    name = "holdlog"
    factory: HoldlogFactory

    def __init__(self, env: EnvType | None = None) -> None:
        super().__init__(env)
        self.name = f"{type(self).name}/{self.factory.store_id}"

    def construct_factory(self, env: Environment) -> HoldlogFactory:
        """The log, whatever database `PERSISTENCE_MODULE` names for views."""
        return HoldlogFactory(env)

    def save(self, *objs: object, **kwargs: Any) -> NoReturn:
        """Refuse. Raises NotSupportedError."""
        raise NotSupportedError(READ_ONLY)
