"""The two operations that agents of echoValue know, as tools and as its REST routes; not in the library."""

from typing import Annotated, ClassVar, Final

from pydantic import BeforeValidator, Field, Strict

from holdlog.adapters.engine.port import Reader
from holdlog.adapters.operations.base import Command, Name, Query, Writable, encode_value, refuse_bool
from holdlog.adapters.operations.values import Get
from holdlog.domain import records
from holdlog.domain.refusals import NotFoundError
from holdlog.domain.results import NotFound, SetResult
from holdlog.domain.values import Json
from holdlog.projections.results import StateRecord

DEFAULT_TTL: Final = 2_592_000
"""Seconds: 30 days."""
_NOTHING: Final = "There is no value under this key, or it expired. Call save_state() to save one."


class SaveState(Command, registered=False, name="save_state", group="kv", scope="write", has_spaces=True):
    """Save a text in shared state, for any agent to read with read_state(). It replaces what is there."""

    results = (SetResult,)
    reads, decide = records.declare_key, records.write
    op: ClassVar = "set"
    updated_by: ClassVar = "mcp"
    expected_version: ClassVar = None
    guard: ClassVar = None
    reason: ClassVar = None
    namespace: Writable = Field(alias="group", description="Namespace / bucket")
    key: Name = Field(description="Identifier")
    text: Annotated[str, Strict()] = Field(alias="value", description="Data to store")
    ttl: Annotated[int, Field(ge=0, le=10**9), BeforeValidator(refuse_bool)] = Field(
        default=0, description="Seconds until it expires; 0: 30 days"
    )

    @property
    def value(self) -> Json:
        return encode_value(self.text)

    @property
    def ttl_seconds(self) -> int:
        return self.ttl or DEFAULT_TTL


class ReadState(Query, registered=False, name="read_state", group="kv", has_spaces=True):
    """Read a text from shared state. not_found: there is none, or it expired."""

    is_quick = True
    results = (StateRecord, NotFound)
    namespace: Name = Field(alias="group")
    key: Name

    def read(self, reader: Reader) -> StateRecord:
        try:
            return Get.model_construct(namespace=self.namespace, key=self.key).read(reader)
        except NotFoundError as error:  # the usual hint names another tool
            error.detail = error.detail._replace(hint=_NOTHING)
            raise
