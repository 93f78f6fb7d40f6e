"""What hosts pass to hooks, and the output that they read: Claude Code, Codex, Cursor, VS Code with Copilot, and
a plain form for OpenCode (opencode.js) and others. Quick to import."""

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

from holdlog.adapters.hooks.tools import MAX_PATHS, READS, Targets, find_named, find_targets, make_local

Event = Literal["pre-edit", "post-edit", "read", "prompt", "start", "turn-end", "subagent-end", "session-end"]
Client = Literal["claude", "codex", "cursor", "opencode", "vscode", "agent"]

EVENTS: Final = get_args(Event)
PLAIN: Final = ("opencode", "agent")
"""Clients that read the plain form."""
OF_ONE_PROCESS: Final = ("cursor", "opencode", "vscode")
"""Hosts whose conversations share a process."""
MAX_CONTEXT: Final = 300
"""Characters that a hook adds to the context of an agent."""
MAX_PATH: Final = 4096
"""Bytes: PATH_MAX of Linux."""
_EVENT_OF: Final[Mapping[str, Event]] = {
    **dict.fromkeys(("pretooluse", "beforeshellexecution", "beforemcpexecution"), "pre-edit"),
    **dict.fromkeys(("posttooluse", "posttoolusefailure", "aftershellexecution", "afterfileedit"), "post-edit"),
    "aftermcpexecution": "post-edit",
    "beforereadfile": "read",
    **dict.fromkeys(("userpromptsubmit", "userpromptsubmitted", "beforesubmitprompt"), "prompt"),
    "sessionstart": "start",
    **dict.fromkeys(("stop", "agentstop", "stopfailure"), "turn-end"),
    "subagentstop": "subagent-end",
    "sessionend": "session-end",
}
_SHELL_EVENTS: Final = ("beforeShellExecution", "afterShellExecution")
"""Events of Cursor that name no tool."""
_FOREIGN: Final = frozenset({"hookEventName", "sessionId", "toolName", "toolArgs"})
"""Fields of VS Code and Copilot, which run the hooks of Claude Code, too."""
_MARK: Final = b"\xef\xbb\xbf"
"""A byte order mark: some pipes on Windows add one, and some hosts another."""
_NAMES: Final = ("agent", "updated_by", "deleted_by")
"""Arguments of our tools that name the caller."""
_OWN_QUERIES: Final = ("status", "events", "wait", "at", "blame")
"""Our tools whose `agent` is a filter."""


class HookCall(NamedTuple):
    """One call of a hook. `name`: the host's name of the event. `session`: the conversation; `agent`: the id of its
    sub-agent, empty for the main one. `folder`: where the agent works. `id`: of the tool call. `resumes`: the
    conversation that ends will continue under another id, or the one that starts continues another one. `called_name`:
    the name that the agent passes to our own tool. `targets`: what the call changes; a folder ends with a slash.
    `command`: of a shell. `failed`: the tool did not run."""

    event: Event
    name: str
    client: Client
    session: str
    agent: str
    folder: str
    id: str = ""
    tool: str = ""
    resumes: bool = False
    called_name: str | None = None
    command: str = ""
    targets: Targets = Targets()
    failed: bool = False
    reading: Any = None
    """What the git commands of a shell do: a Reading of guard.py."""

    @property
    def reaches_agent(self) -> bool:
        """Whether the host passes on what the hook adds for this event, if it allows the call."""
        if self.event == "pre-edit":
            return self.client != "codex"  # which shows it to the user
        if self.event in ("post-edit", "read"):
            return self.client != "cursor" or self.name.lower() == "posttooluse"
        return self.event == "start" or (self.event == "prompt" and self.client != "cursor")


class InputError(ValueError):
    """The host's input cannot be read. The message is one line."""


def read_json(text: bytes) -> Any:
    """The JSON of a host; None if it is not JSON."""
    while text.startswith(_MARK):
        text = text[len(_MARK) :]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def find_folder(fields: Mapping[str, Any]) -> str:
    """The folder in which the agent works; empty if the host names none."""
    roots = fields.get("workspace_roots")
    first = next((it for it in roots if isinstance(it, str)), "") if isinstance(roots, list) else ""
    return make_local(_text(fields, "cwd") or first)


def parse(fields: Any, event: str | None) -> HookCall | None:
    """Read the fields of the host's JSON, except what the call changes. Returns None for an event that needs nothing,
    and for a host that runs another host's hooks in an unknown form. `event`: as named on the command line. Raises
    InputError."""
    if not isinstance(fields, dict):
        raise InputError("the input must be a JSON object")
    if event is not None and event not in EVENTS:
        raise InputError(f"the event must be one of {', '.join(EVENTS)}")
    name = _text(fields, "hook_event_name", "hookEventName")
    kind = event or _EVENT_OF.get(name.lower())
    session = _text(fields, "conversation_id", "session_id", "sessionId")
    if (name and kind is None) or (not (kind and session) and not _FOREIGN.isdisjoint(fields)):
        return None
    if not kind:
        raise InputError("hook_event_name: is missing; name the event, such as pre-edit")
    if not session:
        raise InputError("session_id: is missing")
    client = _find_client(fields, name)
    agent = _text(fields, "agent_id", "subagent_id")
    tool = _text(fields, "tool_name", "toolName") or ("Bash" if name in _SHELL_EVENTS else "")
    arguments = _read_arguments(fields)
    command = arguments.get("command") or arguments.get("cmd") if tool else None
    own = _find_own_tool(tool)
    called = next((arguments[it] for it in _NAMES if isinstance(arguments.get(it), str)), None)
    return HookCall(
        "read" if kind == "post-edit" and tool in READS else kind,  # type: ignore[arg-type]  # one of EVENTS
        name or kind,
        client,
        session,
        "" if client in OF_ONE_PROCESS and agent == session else agent,
        find_folder(fields) or os.getcwd(),
        _text(fields, "tool_use_id", "tool_call_id", "toolUseId", "call_id") or tool,
        tool,
        _text(fields, "reason", "source") in ("clear", "resume"),
        called if own and own not in _OWN_QUERIES else None,
        command=" ".join(map(str, command)) if isinstance(command, list) else _text({"command": command}, "command"),
        failed="failure" in name.lower(),
    )


def find_call_targets(call: HookCall, fields: Mapping[str, Any]) -> Targets:
    """What the call changes. Raises InputError."""
    arguments = _read_arguments(fields)
    if call.tool and call.event != "read":
        targets = find_targets(call.tool, arguments, call.folder)
    else:
        plain = [] if call.tool or call.name != call.event else _list_plain(arguments)
        targets = Targets((*find_named(arguments), *plain))
        if call.client == "agent" and call.event == "pre-edit" and not targets.paths and "paths" not in arguments:
            raise InputError("paths: is missing")
    moved = _text(arguments, "source", "old_path", "oldPath")
    slash = "/" if moved and os.path.isdir(os.path.join(call.folder, moved)) else ""
    paths = [_make_absolute(os.path.join(call.folder, path) + slash) for path in targets.paths]
    if len(paths) > MAX_PATHS:
        return targets._replace(paths=(), problem=f"a call names more than {MAX_PATHS:,} files")
    return targets._replace(paths=tuple(filter(_is_path, paths)))


def _find_own_tool(tool: str) -> str:
    """The name of our tool that a call uses, without prefixes; empty for another one."""
    return re.split(r"holdlog[_/.:]+", tool.lower())[-1] if "holdlog" in tool.lower() else ""


# --- output


class Output(NamedTuple):
    """What a hook prints. `decision`: to deny the call, to let a person decide, or none."""

    text: str = ""
    decision: Literal["", "ask", "deny"] = ""


def limit(text: str) -> Output:
    """What is added to the context of an agent."""
    return Output(text if len(text) <= MAX_CONTEXT else f"{text[: MAX_CONTEXT - 1]}…")


def merge(first: Output, second: Output) -> Output:
    """The texts of both, and the stricter decision."""
    texts = dict.fromkeys(filter(None, (first.text, second.text)))
    return Output(" ".join(texts), max(first.decision, second.decision, key=("", "ask", "deny").index))


def render(call: HookCall, output: Output) -> dict[str, Any]:
    """The output in the form of the host. One that cannot ask a person denies the call, but for Codex, which shows the
    text."""
    text, decision = output
    if not text:
        return {}
    if decision == "ask" and call.client in PLAIN:
        text, decision = f"{text} Ask your user to make it.", "deny"
    if not decision or (decision == "ask" and call.client == "codex"):
        return _render_text(call, text)
    if call.client in PLAIN:
        return {"decision": decision, "reason": text}
    fields = {"permissionDecision": decision, "permissionDecisionReason": text}
    claude = {"hookSpecificOutput": {"hookEventName": call.name} | fields}
    if call.client == "cursor":  # it also runs the hooks of Claude Code, under their names
        own = {"permission": decision, "user_message": text, "agent_message": text}
        return own | (claude if call.name[:1].isupper() else {})
    return fields | claude if call.client == "vscode" else claude  # Copilot reads it at the top


def _render_text(call: HookCall, text: str) -> dict[str, Any]:
    is_before = call.event == "pre-edit"
    if call.client == "cursor":
        return {"agent_message" if is_before else "additional_context": text}
    if call.client in PLAIN:
        return {"warning" if is_before or call.event in ("post-edit", "read") else "context": text}
    if is_before and call.client == "codex":
        return {"systemMessage": text}
    return {"hookSpecificOutput": {"hookEventName": call.name, "additionalContext": text}}


# --- parts


def _find_client(fields: Mapping[str, Any], name: str) -> Client:
    if "cursor_version" in fields or "workspace_roots" in fields:
        return "cursor"
    if name and not _FOREIGN.union({"timestamp"}).isdisjoint(fields):
        return "vscode"
    if name[:1].islower():
        return "cursor"
    if not name:
        return "opencode" if fields.get("client") == "opencode" else "agent"
    return "codex" if "turn_id" in fields or fields.get("tool_name") == "apply_patch" else "claude"


def _list_plain(fields: Mapping[str, Any]) -> list[str]:
    """The paths in the plain form. Raises InputError."""
    paths = [] if fields.get("paths") is None else fields["paths"]
    if not (isinstance(paths, list) and all(isinstance(it, str) and it for it in paths)):
        raise InputError("paths: must be a list of paths")
    return paths


def _read_arguments(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a tool, which some hosts pass as JSON in a text; a text that is not JSON is a patch. The input
    itself in the plain form."""
    arguments = fields.get("tool_input", fields.get("toolArgs"))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {"input": arguments}
    return arguments if isinstance(arguments, dict) and arguments else fields


def _text(fields: Mapping[str, Any], *names: str) -> str:
    """The first text of these fields, empty if they are missing. What neither a path nor UTF-8 can have is replaced."""
    text = next((fields[name] for name in names if isinstance(fields.get(name), str) and fields[name]), "")
    return str(text).replace("\0", "?").encode(errors="replace").decode()


def _make_absolute(path: str) -> str:
    return os.path.abspath(path) + "/" * (path.endswith("/") and path.strip("/") != "")


def _is_path(path: str) -> bool:
    try:
        return "\0" not in path and len(os.fsencode(path)) < MAX_PATH
    except UnicodeEncodeError:
        return False
