"""`POST /hook`: the hooks of hosts that call a URL instead of a command. Their files are elsewhere, so it guards what
editing tools change, and neither shells nor what git says about a file."""

import os
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdlog.adapters.auth.access import Access
from holdlog.adapters.engine.conversations import name_session, require_text, shorten_id
from holdlog.adapters.hooks.calls import HookCall, InputError, Output, find_call_targets, limit, parse, render
from holdlog.adapters.hooks.describe import Describer
from holdlog.adapters.http.calls import SAFE, Calls, fail
from holdlog.adapters.http.calls import render as render_object
from holdlog.adapters.http.metrics import LOG
from holdlog.adapters.http.routes import parse_json, read_query
from holdlog.adapters.operations.json import BUG, refusal_to_object, to_text
from holdlog.domain.claims.commands import Acquire, Call, Release
from holdlog.domain.moment import SECOND, Caller
from holdlog.domain.names import check_agent
from holdlog.domain.refusals import HoldlogError, InvalidError
from holdlog.domain.state import Reads

HINT: Final = "pass them to the tools of holdlog as agent and receipt"


class RemoteHooks:
    """A failure gets an error status: the host continues, and sees that the edit is not guarded."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list_routes(self) -> list[Route]:
        return [Route("/hook", self._respond, methods=["POST"])]

    async def _respond(self, request: Request) -> Response:
        """`root` in the query: the folder of the worktree on the caller's machine; else the one where the agent works
        is taken for it. `event`: for hosts whose JSON names none. `agent`: its name, if it has one already."""
        access: Access = request.scope["access"]
        body = await request.body()
        try:
            access.require_store("claim")
            options = read_query(request, None, ("event", "root", "agent"))
            output = await self._handle(parse_json(body), options, access)
        except InputError as error:
            return fail(400, str(error))
        except HoldlogError as refusal:
            return render_object(refusal_to_object(refusal))
        except Exception:
            LOG.exception("a hook failed; the edit is not guarded")
            return render_object(BUG)
        return Response(to_text(output), headers=SAFE, media_type="application/json")

    async def _handle(self, fields: Any, options: dict[str, str], access: Access) -> dict[str, Any]:
        call = parse(fields, options.get("event"))
        if call is None:
            return {}
        if not call.command:
            call = call._replace(targets=find_call_targets(call, fields))
        work = RemoteWork(self._calls, call, access, options)
        await self._calls.authenticator.check_author(Call(work.name), access)  # type: ignore[arg-type]  # has an agent
        return render(call, await self._calls.in_pool(work.handle))


class RemoteWork:
    """What a call of a hook does. Its conversation is the session, whose id is also the receipt of the agent."""

    def __init__(self, calls: Calls, call: HookCall, access: Access, options: dict[str, str]) -> None:
        """Raises InvalidError."""
        self._engine, self._names, self._call = calls.engine, calls.names, call
        self._root = os.path.abspath(options.get("root") or call.folder)
        name = f"{call.client}-{shorten_id(call.session)}" + (f"/{shorten_id(call.agent)}" if call.agent else "")
        self.name = require_text("agent", options.get("agent", name), check_agent)
        lease = round(calls.settings.lease_seconds * SECOND)
        self._caller = Caller(name_session(call.session), access.principal, lease=lease, is_shared=True)

    def handle(self) -> Output:
        """Blocks."""
        call, output, begins, ends = self._call, Output(), None, "*"
        match call.event:
            case "pre-edit":
                output, begins, ends = self._claim(), call.id, ""
            case "post-edit" | "read":
                ends = call.id
            case "start":
                receipt = self._caller.session
                output = limit(f"holdlog: your agent name is {self.name} and your receipt {receipt}: {HINT}.")
            case "session-end" | "subagent-end":
                if not call.resumes:
                    self._release()
                return output
            case "turn-end" if call.name == call.event:  # in the plain form, which names what to release
                with self._engine.write_alone([(Reads(claims="all"), self._caller)]) as batch:
                    for resource in self._list_resources():
                        self._engine.decide(Release(self.name, resource), self._caller, batch)
        lasts = self._caller.lease if call.targets.paths else self._caller.idle_limit
        if output.decision != "deny":
            self._engine.run(Call(self.name, None, begins or None, lasts, ends or None), self._caller)
        return output

    def _claim(self) -> Output:
        resources = self._list_resources()
        if not resources:
            return Output()
        first, *rest = resources
        result = self._engine.run(Acquire(first, self.name, also=rest or None), self._caller)
        describer = Describer(self.name, self._names.format_name)
        lost = "; ".join(describer.describe_losses(result.lost or (), ()))
        text = f"holdlog: {lost}." if lost else ""
        if result.status != "busy":
            return limit(text)
        return Output(f"{describer.describe_denial(result, True, self._caller.session)} {text}".rstrip(), "deny")

    def _list_resources(self) -> list[str]:
        return list(dict.fromkeys(filter(None, map(self._resolve, self._call.targets.paths))))

    def _resolve(self, path: str) -> str | None:
        """The resource of a file, None outside the worktree."""
        relative = os.path.relpath(path, self._root)
        if relative == ".." or relative.startswith("../"):
            return None
        try:
            return self._names.resolve(relative + "/" * path.endswith("/"), is_new=True)
        except ValueError as error:
            raise InvalidError(f"{error}") from None

    def _release(self) -> None:
        """All that the agent and its sub-agents hold, or all agents of the conversation."""
        with self._engine.write_alone([(Reads(claims="all"), self._caller)]) as batch:
            holder, is_session = (self._caller.session, self._caller.principal), self._call.event == "session-end"
            names = {it.who.agent for it in batch.state.board.claims.values() if it.who[1:] == holder}
            names = {self.name, *(it for it in names if is_session or it.startswith(f"{self.name}/"))}
            for name in sorted(names):
                self._engine.decide(Release(name), self._caller, batch)
