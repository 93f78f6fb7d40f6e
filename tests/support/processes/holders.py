"""Callers of every kind, each with real processes, for the proof of who holds a claim; and a ledger of who believes it.

`python -m tests.support.processes.holders PATH` is a process that uses the library: a JSON line for each call.
"""

import itertools
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import httpx2

from holdlog import FencedError, InvalidError, StateStore
from holdlog.adapters.api.settings import Settings
from holdlog.adapters.auth.tokens import fresh
from holdlog.adapters.compose import open_holdlog
from holdlog.domain.message import Caller as Issuer
from holdlog.domain.token import IssueToken
from tests.support.endpoint import INITIALIZE, LEGACY, MODERN, call, request
from tests.support.holder_rule import Caller, Session
from tests.support.http import HttpServer
from tests.support.processes.soundness import Place
from tests.support.wire import Wire

NAME: Final = "claude"
TOKENS: Final = ("ci", "qa")
MANY: Final = "100000"
PATIENCE: Final = 60.0
Answer = dict[str, Any]
_numbers = itertools.count()


class Ledger:
    """Who believes, from the answers alone, that it holds what. A session with its sub-agents is one believer."""

    def __init__(self) -> None:
        self.believers: dict[str, set[object]] = {}
        self.lost: dict[tuple[object, str], int] = {}
        self.taken: dict[object, set[str]] = {}
        """From whom somebody else took what, or ended it."""

    def note(self, client: "Client", tool: str, arguments: Answer, answer: Answer) -> None:
        shown = answer.get("receipt") or arguments.get("receipt")
        who = (client.caller.token, client.caller.session or ("receipt", shown))
        for loss in answer.get("lost", ()):
            self._forget(_short(loss["resource"]), who)
            self.lost[who, _short(loss["resource"])] = self.lost.get((who, _short(loss["resource"])), 0) + 1
        resource = arguments.get("resource")
        if resource is None:
            for part in answer.get("released", ()):
                self._forget(_short(part["resource"]), who)
            return
        for name in map(_short, (resource, *arguments.get("also", ()))):
            match tool, answer["status"]:
                case "claim", "claimed" | "already_claimed":
                    self.believers.setdefault(name, set()).add(who)
                    assert len(self.believers[name]) == 1, f"{self.believers[name]} believe that they hold {name}"
                case "release", "released":
                    self.believers.pop(name, None)  # its holder in person, or nobody whose session is alive
                case "release", "not_holder" | "expired" | "already_free" | "not_found":
                    self._forget(name, who)

    def end(self, session: Session | None, token: str | None) -> None:
        """Of a session."""
        for resource in self.believers:
            self._forget(resource, (token, session))

    def _forget(self, resource: str, who: object) -> None:
        self.believers.get(resource, set()).discard(who)


def _short(resource: str) -> str:
    return resource.rpartition("/")[2]


@dataclass
class Client:
    """`caller`: what reaches holdlog with each call."""

    world: "World"
    caller: Caller
    returned: "Client | None" = None
    """Its session over another process, once it is back."""
    request_id: str | None = None

    is_told_losses = True

    def __call__(self, tool: str, **arguments: Any) -> Answer:
        """The answer. Without another one it calls under its own name."""
        if tool in ("claim", "release"):
            arguments = {"agent": self.caller.agent} | arguments
        answer = self.send(tool, arguments)
        self.world.ledger.note(self, tool, arguments, answer)
        return answer

    def send(self, tool: str, arguments: Answer) -> Answer:
        raise NotImplementedError

    def guarded(self, resource: str, version: int, receipt: str | None = None) -> str:
        guard = {"resource": resource, "version": version} | ({"receipt": receipt} if receipt else {})
        written = {"namespace": "n", "key": resource, "value": 1, "updated_by": self.caller.agent, "force": True}
        return str(self("set", **written, guard=[guard])["status"])

    def _meta(self) -> Answer:
        named = {"holdlog/request_id": self.request_id} if self.request_id is not None else {}
        return named | (dict([self.caller.meta]) if self.caller.meta is not None else {})

    def end(self) -> None:
        """Its session ends, as its kind ends one in order."""
        raise NotImplementedError

    def kill(self) -> None:
        raise NotImplementedError

    def ended(self) -> None:
        self.world.ledger.end(self.caller.session, self.caller.token)


@dataclass
class Stdio(Client):
    """A session of a server process; with `meta`, the one that the calls name."""

    server: Wire = None  # type: ignore[assignment]

    def send(self, tool: str, arguments: Answer) -> Answer:
        params: Answer = {"name": f"holdlog_{tool}", "arguments": arguments}
        if meta := self._meta():
            params["_meta"] = meta
        return _told(self.server.ask("tools/call", params)["result"])

    def end(self) -> None:
        assert self.server.process.stdin is not None
        self.server.process.stdin.close()
        code, said, _ = self.server.ended()
        assert (code, said) == (0, [])
        self.ended()

    def kill(self) -> None:
        self.server.process.kill()
        self.server.process.wait()
        self.ended()


@dataclass
class Http(Client):
    era: str = MODERN

    @property
    def url(self) -> str:
        return self.world.open_url if self.caller.token is None else self.world.token_url

    def send(self, tool: str, arguments: Answer) -> Answer:
        assert self.url  # its tokens exist from now on
        response = self.post(*call(self.era, tool, arguments, self._meta(), **self._headers()))
        assert response.status_code == 200, response.text
        return _told(_message(response)["result"])

    def post(self, body: bytes, headers: dict[str, str], method: str = "POST") -> httpx2.Response:
        url = self.url
        return self.world.http.request(method, f"{url}/mcp", content=body, headers=headers)

    def initialize(self) -> "Http":
        """Begin a session of the 2025 era."""
        assert self.url
        response = self.post(*request(LEGACY, "initialize", INITIALIZE, **self._headers()))
        self.caller = self.caller._replace(mcp=response.headers["mcp-session-id"])
        return self

    def end(self) -> None:
        assert self.caller.mcp is not None
        response = self.post(b"", {"mcp-protocol-version": LEGACY, **_dashed(self._headers())}, "DELETE")
        assert response.status_code == 200
        self.ended()

    def _headers(self) -> dict[str, str]:
        token = self.caller.token
        headers = {
            "mcp_session_id": self.caller.mcp,
            "holdlog_session": self.caller.header,
            "authorization": f"Bearer {self.world.secrets[token]}" if token is not None else None,
        }
        return {name: text for name, text in headers.items() if text is not None}


@dataclass
class Library(Client):
    """One of the stores, each a session, that a process opens."""

    process: Wire = None  # type: ignore[assignment]
    store: str = ""
    is_told_losses = False

    def send(self, tool: str, arguments: Answer) -> Answer:
        if self.request_id is not None:
            arguments = arguments | {"request_id": self.request_id}
        self.process.send(json.dumps([self.store, self.caller.option, tool, arguments]).encode())
        return self.process.answer()

    def end(self) -> None:
        assert self.process.process.stdin is not None
        self.process.process.stdin.close()
        assert self.process.ended()[0] == 0
        self.ended()

    def kill(self) -> None:
        self.process.process.kill()
        self.process.process.wait()
        self.ended()


@dataclass
class CommandLine(Client):
    """A process for each call: its session has ended when the call returns, unless `--session` names it."""

    is_told_losses = False

    def __call__(self, tool: str, **arguments: Any) -> Answer:
        answer = super().__call__(tool, **arguments)
        if self.caller.option is None:
            self.ended()
        return answer

    def send(self, tool: str, arguments: Answer) -> Answer:
        if tool == "wait":
            words = ["wait", arguments["resource"], "--timeout", str(arguments["timeout_seconds"])]
        elif tool == "set":
            (guard,) = arguments["guard"]
            words = ["set", arguments["namespace"], arguments["key"], "1", "--by", arguments["updated_by"], "--force"]
            words += ["--guard", f"{guard['resource']}@{guard['version']}"]
        else:
            words = [tool, *filter(None, [arguments.get("resource")]), "--agent", arguments["agent"]]
            words += [word for other in arguments.get("also", ()) for word in ("--also", other)]
            words += ["--wait", str(arguments["wait_seconds"])] if "wait_seconds" in arguments else []
        words += ["--session", self.caller.option] if self.caller.option is not None and tool != "wait" else []
        command = [sys.executable, "-m", "holdlog", *words, "--db", str(self.world.place), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert done.stdout, done.stderr
        answer: Answer = json.loads(done.stdout)
        return answer


class World:
    """A store, the servers that share it, and who believes what."""

    def __init__(self, place: Place, stack: ExitStack) -> None:
        self.place = place
        self.ledger = Ledger()
        self.http = stack.enter_context(httpx2.Client(timeout=PATIENCE, trust_env=False))
        self.secrets: dict[str | None, str] = {}
        self._stack = stack
        self._wires: dict[tuple[str, str | None], Wire] = {}
        self.peer = stack.enter_context(StateStore(place, settings=Settings(max_claims=int(MANY))))

    @cached_property
    def open_url(self) -> str:
        """Of a server where everybody is the local user."""
        return self._over_http()

    @cached_property
    def token_url(self) -> str:
        """Of a server that requires tokens."""
        assert self.open_url  # it has to start before there are any
        self.secrets = {name: self._issue(name) for name in TOKENS}
        return self._over_http("--auth")

    def _over_http(self, *options: str) -> str:
        server = HttpServer(
            self.place, "--tools", "claims,state", "--max-claims", MANY, "--max-requests", "0", *options
        )
        self._stack.callback(server.close)
        return server.start().url

    def client(self, kind: str, text: str, token: str | None = None, *, own: bool = False) -> Client:
        """`text`: of its session, where the kind has one that callers name. `own`: with processes of its own."""
        transport, _, source = kind.partition(" ")
        caller = Caller(NAME, token)
        if source == "meta":
            caller = caller._replace(meta=("holdlog/session", text))
        if transport == "stdio":
            if source == "env":
                return Stdio(self, caller._replace(process=text), server=self._stdio(f"env {text}", text, own))
            key = f"process {next(_numbers)}" if own else f"process {text}" if not source else "process other"
            return Stdio(self, caller._replace(process=key), server=self._stdio(key, "", own))
        if transport == "library":
            option = text if source == "option" else None
            store = f"{option} {next(_numbers) if own else text}"
            caller = caller._replace(option=option, process=store)
            return Library(self, caller, process=self._library(own), store=store)
        if transport == "cli":
            return CommandLine(
                self, caller._replace(option=text if source == "option" else None, process=f"call {next(_numbers)}")
            )
        era = LEGACY if transport == "http25" else MODERN
        if source in ("header", "mcp"):
            caller = caller._replace(header=text if source == "header" else "everybody")
        elif source == "meta":
            caller = caller._replace(header="everybody")
        client = Http(self, caller, era=era)
        return client.initialize() if transport == "http25" and source in ("mcp", "meta") else client

    def again(self, client: Client) -> Client:
        """The same session over another process or connection, one for all calls."""
        if client.returned is None:
            client.returned = self._again(client)
        return client.returned

    def _again(self, client: Client) -> Client:
        if isinstance(client, Http | CommandLine):
            return replace(client)
        if isinstance(client, Stdio):
            env = "" if client.caller.meta is not None else client.caller.process or ""
            return replace(client, server=self._stdio("", env, own=True))
        assert isinstance(client, Library)
        return replace(client, process=self._library(own=True))

    def is_current(self, resource: str, version: int) -> bool:
        return bool(getattr(self.peer.status(resource, version), "current", False))

    def free(self, resource: str) -> None:
        """End whatever is left of a case, as a person does."""
        engine = self.peer._engine
        forced = engine.requests.claims.release(resource, "janitor", note="end of a case", forced=True)
        engine.write(forced, engine.caller)
        self.ledger.believers.pop(_short(resource), None)

    def _issue(self, name: str) -> str:
        engine = open_holdlog(self.place)
        try:
            issued = fresh(name)
            engine.change_token(
                IssueToken(name=name, hash=issued.hash, allow=("claim:*", "write:*", "read:*"), by="root"), Issuer()
            )
        finally:
            engine.close()
        return issued.text

    def _stdio(self, key: str, session: str, own: bool) -> Wire:
        arguments = ("-m", "holdlog", "--db", str(self.place), "--tools", "claims,state", "--max-claims", MANY)
        return self._wire(("stdio", None if own else key), arguments, {"CLAUDE_CODE_SESSION_ID": session}, mcp=True)

    def _library(self, own: bool) -> Wire:
        arguments = ("-m", "tests.support.processes.holders", str(self.place))
        return self._wire(("library", None if own else ""), arguments, {}, mcp=False)

    def _wire(self, key: tuple[str, str | None], arguments: tuple[str, ...], env: dict[str, str], mcp: bool) -> Wire:
        if key in self._wires:
            return self._wires[key]
        wire = Wire(*arguments, env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **env})
        self._stack.callback(wire.close)
        if mcp:
            wire.open()
        if key[1] is not None:
            self._wires[key] = wire
        return wire


def _told(result: Answer) -> Answer:
    answer: Answer = json.loads(result["content"][0]["text"])
    return answer


def _message(response: httpx2.Response) -> Answer:
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    message: Answer = json.loads(lines[-1] if lines else response.text)
    return message


def _dashed(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): text for name, text in headers.items()}


def _serve_library(path: str) -> None:
    stores: dict[str, StateStore] = {}
    for line in sys.stdin:
        name, session, tool, arguments = json.loads(line)
        if name not in stores:
            stores[name] = StateStore(path, session=session, settings=Settings(max_claims=int(MANY)))
        print(json.dumps(_library_call(stores[name], tool, arguments)), flush=True)
    for store in stores.values():
        store.close()


def _library_call(store: StateStore, tool: str, arguments: Answer) -> Answer:
    if tool != "set":
        given = dict(arguments)
        try:
            result: Any = getattr(store, tool)(given.pop("resource", None), **given)
        except InvalidError as error:
            return {"status": "error", "message": str(error)}
        return dict(result.body())
    given = {name: arguments[name] for name in ("updated_by", "guard")}
    try:
        return dict(store.set(arguments["namespace"], arguments["key"], arguments["value"], **given).body())
    except FencedError:
        return {"status": "fenced"}
    except InvalidError as error:
        return {"status": "error", "message": str(error)}


if __name__ == "__main__":
    _serve_library(sys.argv[1])
