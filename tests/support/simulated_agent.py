"""An agent that knows the list of tools and follows hints. It knows no refusal: a hint that does not say what to do
leads it nowhere."""

import copy
import difflib
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from fastmcp import Client

from tests.support.call_arguments import Arguments, is_author, literal, place, replaced, values
from tests.support.hint_reading import OWN_NAME, PERSON, Step, branches, steps

MOST_CALLS: Final = 12
PATIENT: Final = 3
"""How often the agent repeats a call before it believes that it keeps failing."""
PREFIX: Final = "holdlog_"


class Call(NamedTuple):
    tool: str
    arguments: Arguments
    meta: Mapping[str, Any] | None = None


class Goal(NamedTuple):
    """What the user wants. `call`: the call that the agent begins with; `is_reached`: whether a response to a tool (its
    short name) shows the goal reached. `change`: makes its change in a value of others. `knows`: further arguments that
    the user named."""

    call: Call
    is_reached: Callable[[str, Arguments], bool]
    change: Callable[[Any], Any] = lambda value: value
    knows: Mapping[str, Any] = {}


class Exchange(NamedTuple):
    """`response`: the response, or the error as a response. `text`: its hint or its message, if any."""

    call: Call
    response: Arguments
    text: str | None


class Ended(NamedTuple):
    """`report`: what the agent tells its user if it did not reach its goal."""

    is_reached: bool
    report: str | None


class Impossible(Exception):
    """A call in a hint that needs what the agent does not have."""


class SimulatedAgent:
    """`pause`: called instead of sleeping, with seconds. `others`: what others do after each response."""

    def __init__(
        self,
        client: "Client[Any]",
        name: str,
        pause: Callable[[float], None],
        others: Callable[[], Awaitable[None]],
    ) -> None:
        self.name = name
        self.journey: list[Exchange] = []
        self._client = client
        self._pause = pause
        self._others = others
        self._schemas: dict[str, Arguments] = {}
        self._read_only: set[str] = set()

    async def pursue(self, goal: Goal) -> Ended:
        """Make calls until the goal is reached, or the last text leaves nothing to do but to report it."""
        await self._read_the_list_of_tools()
        self._goal, self._goal_call = goal, goal.call
        plan: list[tuple[Step, Exchange]] = []
        text: str | None = None
        for _ in range(MOST_CALLS):
            step, refusal = plan.pop(0) if plan else (None, None)
            if step is None or refusal is None:
                made = await self.make(self._goal_call)
            else:
                if seconds := re.search(r"\bafter (\w+) seconds", step.words):
                    self._pause(refusal.response[seconds[1]])
                made = await self.make(self._call_of(step, refusal))
            if goal.is_reached(made.call.tool.removeprefix(PREFIX), made.response):
                return Ended(True, None)
            if refusal is not None and made.call.tool in self._read_only and self._correct(refusal, made.response):
                plan = []
                continue
            text = made.text or text
            await self._others()
            if made.text is not None:
                following = self._plan(made)
                if isinstance(following, Ended):
                    return following
                plan = following + plan
        return Ended(False, text)

    async def _read_the_list_of_tools(self) -> None:
        for tool in await self._client.list_tools():
            self._schemas[tool.name] = tool.input_schema
            if tool.annotations is not None and tool.annotations.read_only_hint:
                self._read_only.add(tool.name)

    async def make(self, call: Call) -> Exchange:
        """Make a call under the agent's name."""
        for name in call.arguments:
            if is_author(name):
                call.arguments[name] = self.name
        result = await self._client.call_tool_mcp(
            call.tool, call.arguments, meta=dict(call.meta) if call.meta else None
        )
        response = json.loads(result.content[0].text)  # type: ignore[union-attr]
        self.journey.append(Exchange(call, response, response.get("hint" if not result.is_error else "message")))
        return self.journey[-1]

    # --- what to do next

    def _plan(self, refused: Exchange) -> list[tuple[Step, Exchange]] | Ended:
        """What the text of a response leads to."""
        assert refused.text is not None
        if (corrected := self._corrected(refused)) is not None:
            self._goal_call = corrected
            return []
        for branch in branches(refused.text):
            done = re.search(r"\bif (\w+) contains your change, you are done", branch, re.IGNORECASE)
            if done:
                if self._goal.is_reached("get", {"value": refused.response.get(done[1])}):
                    return Ended(True, None)
                continue
            found = steps(branch, self._schemas, PREFIX)
            renames = OWN_NAME.search(branch) is not None
            try:
                for step in found:
                    self._call_of(step, refused, ahead=True)
            except Impossible:
                continue
            if renames:
                self.name = f"claude-{len(self.journey):04x}"
            if PERSON.search(branch) and (not found or self._keeps_failing(refused)):
                return Ended(False, refused.text)
            return [(step, refused) for step in found]
        return []

    def _keeps_failing(self, refused: Exchange) -> bool:
        last = self.journey[-PATIENT:]
        return len(last) == PATIENT and all((it.call, it.text) == (refused.call, refused.text) for it in last)

    def _corrected(self, refused: Exchange) -> Call | None:
        """The call that an error asks for instead, if it is about one argument or the name of the tool."""
        call, text = refused.call, refused.text or ""
        if meant := re.search(r"unknown tool; did you mean (\w+)\?", text):
            return call._replace(tool=meant[1])
        about = re.match(r"(?:(\w+)\[\d+\]: )?(\w+): ", text)
        name = about[2] if about else ""
        arguments = copy.deepcopy(call.arguments)
        if name == "request_id" and "choose a new one" in text:
            return call._replace(meta=_with_new_request(call))
        if name not in arguments:
            return None
        given = arguments[name]
        if meant := re.search(r"did you mean (\w+)\?", text):
            arguments[meant[1]] = arguments.pop(name)
        elif parts := re.search(r"pass the first as (\w+) and the others in (\w+)", text):
            arguments[parts[1]], *arguments[parts[2]] = re.split(r"\s*[,;]\s*", given)
        elif example := re.search(r"must .*\bsuch as ([^\s,]+)", text):
            arguments[name] = example[1]
        elif bounds := re.search(r"from ([\d.]+) to ([\d.]+)", text):
            arguments[name] = min(max(given, float(bounds[1])), float(bounds[2]))
        elif "store a reference to it" in text:
            arguments[name] = self._goal.knows["reference"]
        else:
            return None
        return call._replace(arguments=arguments)

    def _correct(self, refusal: Exchange, response: Arguments) -> bool:
        """Correct the spelling of an identifier of the goal if a list shows one that is spelled almost like it."""
        corrected = False
        for name in self._identifiers():
            given = refusal.response.get(name)
            known = {str(it) for it in values(response, name)} | {key for it in values(response, "data") for key in it}
            if isinstance(given, str) and given not in known:
                for near in difflib.get_close_matches(given, known, 1):
                    self._goal_call = self._goal_call._replace(
                        arguments=replaced(self._goal_call.arguments, name, given, near)
                    )
                    corrected = True
        return corrected

    # --- the call that a step means

    def _call_of(self, step: Step, refusal: Exchange, ahead: bool = False) -> Call:
        """Fill the arguments of a step, from the words of the hint and from responses. `ahead`: only check whether the
        agent has what only earlier responses can give. Raises Impossible."""
        refused, words = refusal.call, step.words
        tool = self._tool_of(step, refusal)
        is_again = step.kind == "repeat" or (tool == refused.tool and re.search(r"\bagain\b", words) is not None)
        needed = () if step.kind != "write" else ("value",)
        filled = copy.deepcopy(refused.arguments) if is_again else self._required(tool, refusal, *needed)
        if not is_again:
            self._fill_pronouns(filled, tool, words, refusal)
        for name, value, inside in self._named_values(tool, words, refusal, ahead):
            place(filled, name, value, inside, refusal.response)
        for removed in re.finditer(r"\bwithout (\w+)", words):
            filled.pop(removed[1], None)
        if merged := re.search(r"\b(?:merge|adapt) (?:your change|the operation|it)(?: (?:in)?to (\w+))?", words, re.I):
            field = merged[1] or next(it for it in re.findall(r"\w+", refusal.text or "") if it in refusal.response)
            place(filled, "value", self._goal.change(refusal.response[field]), None, refusal.response)
        if step.kind == "write" and not ahead:
            filled[self._argument("version", tool)] = self.journey[-1].response["version"]
            filled["value"] = self._goal.change(self.journey[-1].response["value"])
        meta = _with_new_request(refused) if "a new request id" in words else refused.meta
        call = Call(tool, filled, meta)
        if is_again and not ahead and tool == self._goal_call.tool:
            self._goal_call = call
        return call

    def _tool_of(self, step: Step, refusal: Exchange) -> str:
        if step.kind in ("call", "repeat"):
            return step.tool or refusal.call.tool
        if step.kind == "read":
            able = [it for it in self._read_only if self._required_names(it) <= refusal.call.arguments.keys()]
        else:
            able = [it for it in self._schemas.keys() - self._read_only if "value" in self._required_names(it)]
        in_order = [it for it in self._schemas if it in able]
        return max(in_order, key=lambda it: len(self._required_names(it) & refusal.call.arguments.keys()))

    def _required(self, tool: str, refusal: Exchange, *without: str) -> Arguments:
        return {
            name: self.name if is_author(name) else self._known(name, refusal)
            for name in self._schemas[tool].get("required", ())
            if name not in without
        }

    def _known(self, name: str, refusal: Exchange) -> Any:
        """The value that an argument of this name has in the refusal, in the goal or in earlier calls."""
        earlier = [it.call.arguments for it in reversed(self.journey)]
        for source in (refusal.response, refusal.call.arguments, self._goal.knows, *earlier):
            if name in source:
                return source[name]
        raise Impossible(name)

    def _fill_pronouns(self, filled: Arguments, tool: str, words: str, refusal: Exchange) -> None:
        names = [it for it in self._identifiers() if it in self._schemas[tool]["properties"] and it not in filled]
        if one := re.search(r"\bone of your \w+ in (\w+)", refusal.text or ""):
            mine = next(row for row in refusal.response[one[1]] if self.name in row.values())
            given = {self.name, *map(str, refusal.call.arguments.values())}
            filled |= {name: next(it for it in mine.values() if it not in given) for name in names}
        elif re.search(r"\bsome\b", words):
            for name in names:
                held = [it.call.arguments.get(name) for it in self.journey]
                filled[name] = next(it for it in held if it != refusal.call.arguments[name])
        elif re.search(r"(?:^|\bfor )(?:it|this|your)\b", words):
            filled |= {name: self._known(name, refusal) for name in names}
        if positional := re.match(r"\"?(\w+://[^\s\"]+?)\"?\.?$", words):
            filled[next(it for it in filled if it in self._identifiers())] = positional[1]

    def _named_values(
        self, tool: str, words: str, refusal: Exchange, ahead: bool
    ) -> Iterator[tuple[str, Any, str | None]]:
        """The arguments that the words name: name, value and, for one inside another argument, that argument."""
        response, text = refusal.response, refusal.text or ""
        latest = self.journey[-1].response
        for it in re.finditer(r"\b(\w+)=([^\s,;]+?)(?=[.,;]?(?:\s|$))(?: in (?:this |that )?(\w+))?", words):
            yield it[1], literal(it[2]), it[3]
        for it in re.finditer(r"\b(?:its|a)(?: new)? (\w+)(?: from it)?(?: as (\w+)| in (\w+)|(?<=from it))", words):
            if not ahead:
                found = next(iter(values(latest, it[1])), None)
                if found is None:
                    raise Impossible(it[1])
                yield it[2] or (it[1] if it[3] else self._argument(it[1], tool)), found, it[3]
        for it in re.finditer(r"\bthe (\w+) you were given(?: (?:to|in) (?:this )?(\w+))?", words):
            yield it[1], self._remembered(it[1], refusal), it[2]
        for it in re.finditer(r"\b(?:with|and) (?:this|that) (\w+)", words):
            behind = re.search(rf"\bthe {it[1]} in (\w+)", text)
            yield self._argument(it[1], tool), response[behind[1]] if behind else self._known(it[1], refusal), None
        for it in re.finditer(r"\bwith the (\w+) in (\w+)", words):
            yield self._argument(it[1], tool), response[it[2]], None
        for it in re.finditer(r"\b(\w+) set to your name", words):
            yield it[1], self.name, None
        for it in re.finditer(r"\bwith a (\S+) at the end of its name", words):
            name = next(name for name in self._schemas[tool]["required"] if not is_author(name))
            yield name, refusal.call.arguments[name] + it[1], None

    def _remembered(self, field: str, refusal: Exchange) -> Any:
        """What an earlier response about the same thing contained."""
        for it in reversed(self.journey):
            same = [it.response.get(name) == refusal.response.get(name) for name in self._identifiers()]
            if field in it.response and all(same):
                return it.response[field]
        raise Impossible(field)

    def _argument(self, noun: str, tool: str) -> str:
        """The argument of a tool that a noun means: by its name, the end of its name, or its description."""
        schema: Arguments = self._schemas[tool]["properties"]
        for fits in (
            lambda name: name == noun,
            lambda name: name.endswith(f"_{noun}"),
            lambda name: re.search(rf"\b{noun}\b", schema[name].get("description", ""), re.IGNORECASE),
        ):
            for name in schema:
                if fits(name):
                    return name
        raise Impossible(noun)

    def _required_names(self, tool: str) -> set[str]:
        return set(self._schemas[tool].get("required", ()))

    def _identifiers(self) -> list[str]:
        """Arguments that say what a call is about: a tool requires them, and they are names."""
        return sorted(
            {
                name
                for schema in self._schemas.values()
                for name in schema.get("required", ())
                if schema["properties"][name].get("type") == "string" and not is_author(name) and name != "value"
            }
        )


def _with_new_request(call: Call) -> Arguments:
    return {**(call.meta or {}), "holdlog/request_id": f"{(call.meta or {}).get('holdlog/request_id')}-new"}
