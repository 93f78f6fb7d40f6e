"""What all operations have in common: declaration, arguments, errors."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    Strict,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import PydanticSerializationError, from_json, to_json

from holdlog.adapters.engine.engine import Engine
from holdlog.adapters.engine.port import Reader
from holdlog.adapters.engine.waiting import ALL
from holdlog.domain import names
from holdlog.domain.claims.resource import check_claimable, check_resource
from holdlog.domain.moment import Caller, Moment
from holdlog.domain.refusals import InvalidError
from holdlog.domain.state import Decision, Reads, State
from holdlog.domain.values import MAX_NESTING, Json, count_levels

MAX_LIMIT: Final = 1000
"""Rows of a page."""
WAITS: Final = ("wait_seconds", "timeout_seconds")
"""The argument that says how long a call waits has one of these names."""
OPERATIONS: Final[dict[str, type["Operation"]]] = {}
"""All operations by name: surfaces are derived from them."""


class Operation(BaseModel):
    """One thing that callers can do. Fields are its arguments; its docstring is for agents. Options of a declaration:

    `positional`: arguments that commands and the library take by position, by default those in the path of its route.
    `returns`: the library returns this field of the result alone. `computes`: the library also takes a function of the
    current value. `waits`: the command runs again while its ticket is in the queue. `repeats`: the task takes a request
    id. `overwrites`: all surfaces except the library require expected_version or force. `tool`: its name on these
    surfaces. `has_spaces`: it touches only namespaces, in arguments and results with that name, so callers in a space
    may use it. `registered`: whether it becomes a method of the library.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True)

    name: ClassVar[str]
    group: ClassVar[str] = ""
    route: ClassVar[str] = ""
    positional: ClassVar[tuple[str, ...]]
    scope: ClassVar[str] = "read"
    results: ClassVar[tuple[type, ...]]
    returns: ClassVar[str] = ""
    computes: ClassVar[bool] = False
    waits: ClassVar[bool] = False
    repeats: ClassVar[bool] = False
    overwrites: ClassVar[bool] = False
    has_spaces: ClassVar[bool] = False
    tool: ClassVar[str]

    def __init_subclass__(cls, **options: Any) -> None:
        """Pydantic's own handling would refuse the options of a declaration."""
        super().__init_subclass__()

    @classmethod
    def __pydantic_init_subclass__(
        cls, name: str = "", positional: str | None = None, tool: str = "", registered: bool = True, **options: Any
    ) -> None:
        if strange := options.keys() - Operation.__annotations__:
            raise TypeError(f"{min(strange)}: is not an option of a declaration")
        if name:
            in_path = re.findall(r"\{(\w+)\}", options.get("route", ""))
            cls.name, cls.tool = name, tool or name
            cls.positional = tuple(in_path if positional is None else positional.split())
            for option, value in options.items():
                setattr(cls, option, value)
            if registered:
                OPERATIONS[name] = cls

    @classmethod
    def parse(cls, arguments: dict[str, Any]) -> Self:
        """Check the arguments. Raises InvalidError, which names the argument and never its value."""
        try:
            operation: Self = cls.__pydantic_validator__.validate_python(arguments)
        except ValidationError as error:
            raise describe(error) from None
        return operation


class Command(Operation):
    """An operation that changes the store."""

    scope: ClassVar[str] = "write"

    def reads(self) -> Reads:
        raise NotImplementedError

    def decide(self, state: State, moment: Moment) -> Decision:
        raise NotImplementedError

    def recall(self, result: Any, state: State, moment: Moment) -> Any:
        """The result of an earlier request with the same id, from its JSON."""
        kind = next(kind for kind in self.results if kind._field_defaults["status"] == result[-1])  # type: ignore[attr-defined]
        return TypeAdapter(kind).validate_python(result)


class Task(Operation):
    """An operation that takes longer than a command or query may."""

    def run(self, engine: Engine, caller: Caller) -> Any:
        raise NotImplementedError


class Query(Operation):
    """An operation that only reads. It `is_quick` if it reads one row."""

    is_quick: ClassVar[bool] = False

    def read(self, reader: Reader) -> Any:
        """The result; a blocking query returns Wait while it has none."""
        raise NotImplementedError


class BlockingQuery(Query):
    """A query that waits for events."""

    def list_topics(self) -> tuple[str, ...]:
        """What it waits for: streams, a kind of streams such as `claim:`, or ALL."""
        return (ALL,)

    def find_timeout(self) -> float:
        """For how many seconds."""
        return float(next(getattr(self, name) for name in WAITS if name in type(self).model_fields))

    def give_up(self, reader: Reader, elapsed: float) -> Any:
        """The result after waiting `elapsed` seconds."""
        raise NotImplementedError

    def finish(self, result: Any, elapsed: float) -> Any:
        """Complete a result after waiting `elapsed` seconds."""
        return result


_TEXTS: Final = {
    "extra_forbidden": "unknown argument",
    "missing": "is required",
    "model_attributes_type": "must be an object",
    "model_type": "must be an object",
    "too_short": "must not be empty",
}
"""Instead of pydantic's own words for these kinds of errors."""


def describe(error: ValidationError) -> InvalidError:
    """One line without the value: what one caller writes is untrusted input to the next."""
    errors = error.errors(include_url=False, include_input=False)
    first = errors[0]
    place: Sequence[str | int] = first["loc"]
    text = _TEXTS.get(first["type"]) or re.sub(r"^Value error, |(, unable to| after validation).*", "", first["msg"])
    text = re.sub(r"\b(Input|List|String) should", "must", text).replace("a valid integer", "a whole number")
    if first["type"].startswith("union_tag_"):
        tag, kinds = (first["ctx"].get(name, "").replace("'", "") for name in ("discriminator", "expected_tags"))
        text = f"{tag}: must be {' or '.join(kinds.rsplit(', ', 1))}" if kinds else f"{tag}: is required"
    strange = [it["loc"][-1] for it in errors if it["type"] == "extra_forbidden" and it["loc"][:-1] == place[:-1]]
    if first["type"] == "missing" and strange:  # perhaps it is misspelt
        text += f"; {strange[0]}: {_TEXTS['extra_forbidden']}"
    refusal = InvalidError()
    if len(place) > 1 and place[0] == "operations" and isinstance(place[1], int):
        refusal.operation = place[1]
        place = place[3:] or place[2:]
    where = ".".join(map(str, place))
    refusal.args = (f"{where}: {text}" if where else text,)
    return refusal


def refuse_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def encode_value(value: Any) -> Json:
    """The text of a JSON value. Raises ValueError for what JSON cannot carry unchanged: NaN and infinities, keys that
    are not texts, lone surrogates, other objects, more than 100 levels."""
    try:
        text = to_json(value)
        if from_json(text, allow_inf_nan=False) != value:
            raise ValueError
    except (ValueError, PydanticSerializationError):
        raise ValueError("must be JSON: null, true, false, a finite number, a text, a list or an object") from None
    result = Json(text.decode())
    if len(result) > 2 * MAX_NESTING and count_levels(result) > MAX_NESTING:
        raise ValueError(f"may have at most {MAX_NESTING} levels of nesting")
    return result


def encode_number(value: Any) -> Json:
    text = encode_value(value)
    if text[0] not in "-0123456789":
        raise ValueError("must be a number")
    return text


Name = Annotated[str, Strict(), AfterValidator(names.check_name)]
Writable = Annotated[str, Strict(), AfterValidator(names.check_writable)]
Label = Annotated[str, Strict(), AfterValidator(names.check_label)]
Resource = Annotated[str, Strict(), AfterValidator(check_resource)]
Claimable = Annotated[str, Strict(), AfterValidator(check_claimable)]
Agent = Annotated[str, Strict(), AfterValidator(names.check_agent)]
Note = Annotated[str, Strict(), AfterValidator(names.check_note)]
Prefix = Annotated[str, Strict(), AfterValidator(names.check_prefix)]
Version = Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(refuse_bool)]
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT), BeforeValidator(refuse_bool)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False, le=10**9), BeforeValidator(refuse_bool)]
Duration = Annotated[float, Field(gt=0, allow_inf_nan=False, le=10**9), BeforeValidator(refuse_bool)]
JsonValue = Annotated[Any, PlainValidator(encode_value), WithJsonSchema({})]
JsonNumber = Annotated[Any, PlainValidator(encode_number), WithJsonSchema({"type": "number"})]


class Condition(BaseModel):
    """A claim that a write relies on: its resource, and the version of the grant."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    resource: Resource
    version: Version


Guard = Annotated[list[Condition], Field(max_length=100)]
