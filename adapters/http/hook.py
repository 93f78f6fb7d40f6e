"""`POST /hook`: the hooks of hosts that call a URL instead of a command. Their files are elsewhere, so it guards what
editing tools change, and neither shells nor what git says about a file."""

import os
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdlog.adapters.auth.access import Access
from holdlog.adapters.engine.conversations import name_session, shorten_id
from holdlog.adapters.hooks.calls import HookCall, InputError, Output, find_call_targets, limit, parse, render
from holdlog.adapters.hooks.describe import Describer
from holdlog.adapters.http.calls import LOG, SAFE, Calls, fail
from holdlog.adapters.http.calls import render as render_object
from holdlog.adapters.http.routes import parse_json, read_query
from holdlog.adapters.operations.json import refusal_to_object, to_text
from holdlog.domain.claims.commands import Acquire, Call, Release
from holdlog.domain.moment import SECOND, Caller
from holdlog.domain.refusals import HoldlogError, InvalidError
from holdlog.domain.state import Reads

HINT: Final = "pass them to the tools of holdlog as agent and receipt"


class RemoteHooks:
    """Whatever fails behind the check of the call lets the host go on."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list_routes(self) -> list[Route]:
        return [Route("/hook", self._respond, methods=["POST"])]

    async def _respond(self, request: Request) -> Response:
        """`root` in the query: the folder of the worktree on the caller's machine; else the one where the agent works
        is taken for it. `event`: for hosts whose JSON names none."""
        access: Access = request.scope["access"]
        try:
            access.require_store("claim")
            options = read_query(request, None, ("event", "root"))
            given = parse_json(await request.body())
            call = parse(given, options.get("event"))
            if call is not None and call.event == "pre-edit" and not call.command:
                call = call._replace(targets=find_call_targets(call, given))
        except InputError as error:
            return fail(400, str(error))
        except HoldlogError as refusal:
            return render_object(refusal_to_object(refusal))
        output: dict[str, Any] = {}
        try:
            if call is not None:
                work = RemoteWork(self._calls, call, access, options.get("root") or call.folder)
                output = render(call, await self._calls.in_pool(work.answer))
        except Exception:
            LOG.exception("a hook failed; the edit is not guarded")
        return Response(to_text(output), headers=SAFE, media_type="application/json")


class RemoteWork:
    """What a call of a hook does. Its conversation is the session, whose id is also the receipt of the agent."""

    def __init__(self, calls: Calls, call: HookCall, access: Access, root: str) -> None:
        self._engine, self._names, self._call = calls.engine, calls.names, call
        self._root = os.path.abspath(root)
        self._name = f"{call.client}-{shorten_id(call.session)}"
        if call.agent:
            self._name += f"/{shorten_id(call.agent)}"
        lease = round(calls.limits.lease_seconds * SECOND)
        self._caller = Caller(name_session(call.session), access.principal, lease=lease, is_shared=True)

    def answer(self) -> Output:
        """Blocks."""
        match self._call.event:
            case "pre-edit" if self._call.targets.paths:
                return self._claim()
            case "start":
                self._engine.run(Call(self._name), self._caller)
                receipt = self._caller.session
                return limit(f"holdlog: your agent name is {self._name} and your receipt {receipt}: {HINT}.")
            case "session-end" if self._call.resumes:
                return Output()
            case "session-end" | "subagent-end":
                self._release()
            case _:
                self._engine.run(Call(self._name), self._caller)
        return Output()

    def _claim(self) -> Output:
        resources = list(dict.fromkeys(filter(None, map(self._resolve, self._call.targets.paths))))
        if not resources:
            return Output()
        first, *rest = resources
        result = self._engine.run(Acquire(first, self._name, also=rest or None), self._caller)
        if result.status != "busy":
            return Output()
        describer = Describer(self._name, self._names.spell)
        return Output(describer.describe_denial(result, has_server=True), "deny")

    def _resolve(self, path: str) -> str | None:
        """The resource of a file, None outside the worktree."""
        relative = os.path.relpath(path, self._root)
        if relative.startswith(".."):
            return None
        try:
            return self._names.resolve(relative + "/" * path.endswith("/"), is_new=True)
        except ValueError as error:
            raise InvalidError(f"{error}") from None

    def _release(self) -> None:
        """All that the agent holds, or all agents of the conversation."""
        with self._engine.write_alone([(Reads(claims="all"), self._caller)]) as batch:
            names = {self._name}
            if self._call.event == "session-end":
                holder = (self._caller.session, self._caller.principal)
                names |= {it.who.agent for it in batch.state.board.claims.values() if it.who[1:] == holder}
            for name in sorted(names):
                self._engine.decide(Release(name), self._caller, batch)
