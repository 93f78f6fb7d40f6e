"""What a host passes to a hook, and the output that it reads: Claude Code, Codex, Cursor, and a plain form for OpenCode
(opencode.js) and others.

Standard library only and quick to import: the hook's fast path uses it. Formats: docs/hosts.md.
"""

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

from holdlog.adapters.hooks.files import GitCommand, Targets, local_path, named_path, targets

Event = Literal["pre-edit", "post-edit", "read", "prompt", "start", "turn-end", "subagent-end", "session-end"]
Client = Literal["claude", "codex", "cursor", "opencode", "vscode", "agent"]

EVENTS: Final = get_args(Event)
SHARED_SERVER: Final = frozenset({"cursor", "opencode", "vscode"})
"""Hosts whose sessions share one server, so that each session is an agent."""
PLAIN: Final = frozenset({"opencode", "agent"})
"""Clients that read the plain form."""
MAX_CONTEXT: Final = 300
"""Characters that a hook adds to the context of an agent."""
LONGEST_PATH: Final = 4096
"""Bytes. No system call takes a longer one (PATH_MAX of Linux)."""
LONGEST_VERSION: Final = 100
MAX_PROMPT: Final = 40
"""Characters of a prompt that a person recognizes a session by."""
MAX_PATHS: Final = 1_000
"""Paths of one call."""

_IN_BACKGROUND: Final = ("run_in_background", "isBackground", "is_background")
"""Arguments of the shells of Claude Code, VS Code and Cursor."""
_LASTING: Final = (
    r"(?<![&<>|\\])&(?![&>])|\b(?:nohup|setsid|tmux|screen|disown|coproc|daemonize|systemd-run|start-stop-daemon|pm2"
    r"|at (?:now|\d))\b"
)
"""Seems to start a process that its shell does not wait for: wherever it is, because a wrong guess costs little."""
_PATCH: Final = r"(?:^|[;&|({`\n]|\b(?:then|do|sudo))\s*patch\s"
_MAX_EXAMINED: Final = 10 * MAX_PROMPT
_EVENT_OF: Final[Mapping[str, Event]] = {
    "pretooluse": "pre-edit",
    "beforeshellexecution": "pre-edit",
    "beforemcpexecution": "pre-edit",
    "posttooluse": "post-edit",
    "aftershellexecution": "post-edit",
    "afterfileedit": "post-edit",
    "beforereadfile": "read",
    "userpromptsubmit": "prompt",
    "userpromptsubmitted": "prompt",
    "beforesubmitprompt": "prompt",
    "sessionstart": "start",
    "stop": "turn-end",
    "agentstop": "turn-end",
    "subagentstop": "subagent-end",
    "sessionend": "session-end",
}

READS: Final = frozenset({"Read", "NotebookRead", "read_file", "read"})
"""Tools that read a file."""
_MARKS: Final = b"\xef\xbb\xbf"
"""A byte order mark. Some pipes on Windows add one, and some hosts another."""
_SHELL_EVENTS: Final = frozenset({"beforeShellExecution", "afterShellExecution"})
"""Events of Cursor that name no tool."""
_FOREIGN: Final = frozenset({"hookEventName", "sessionId", "toolName", "toolArgs"})
"""Fields of VS Code and Copilot, which run the hooks of Claude Code, too."""
_SOURCES: Final = ("source", "old_path", "oldPath")
"""Arguments of tools that move a file or a folder."""
_NAMING: Final = ("claim", "release", "register")
"""Ends of the names of our tools whose argument `agent` is the caller; in others it is a filter."""


class HookCall(NamedTuple):
    """One call of the hook. `name`: the host's name of the event. `agent`: what tells the agents of a session apart,
    empty for the main one. `paths`: absolute paths that are about to change; one that becomes a folder ends with a
    slash. `called_name`: the agent name that a call of our own tools passes, and `claiming` the resources that it
    claims. `folder`: where the agent works. `resumes`: the session continues after its end. `version`: of the host, if
    it says so. `git`, `reports`, `problem`: as in Targets. `prompt`: the first words of what the user wrote.
    `lasts`: a command of the shell may run on when the call has ended. `patches`: it runs the program `patch`."""

    event: Event
    name: str
    client: Client
    session: str
    agent: str
    folder: str
    paths: tuple[str, ...] = ()
    called_name: str | None = None
    resumes: bool = False
    version: str = ""
    claiming: tuple[str, ...] = ()
    git: tuple[GitCommand, ...] = ()
    reports: bool = False
    problem: str = ""
    prompt: str = ""
    lasts: bool = False
    patches: bool = False

    @property
    def real_paths(self) -> list[str]:
        """`paths`, without symbolic links."""
        return [os.path.realpath(path) for path in self.paths]

    @property
    def reaches_agent(self) -> bool:
        """Whether the host passes on to the agent what the hook prints for this event, if it allows the call."""
        match self.event:
            case "pre-edit":
                return self.client != "codex"  # it shows a warning to the user
            case "post-edit" | "read":
                return self.client != "cursor" or self.name.lower() == "posttooluse"
            case "prompt":
                return self.client != "cursor"
            case event:
                return event == "start"

    @property
    def holds_all(self) -> bool:
        """Whether what its session holds is all that of this agent and its sub-agents."""
        return self.client not in SHARED_SERVER and not self.agent

    def is_of_session(self, agent: str) -> bool:
        """Whether an agent of the same server belongs to the host's session."""
        return self.client not in SHARED_SERVER or agent == self.agent


class BadInputError(ValueError):
    """The host's input cannot be read. The message is one line."""


class NotAHookCallError(BadInputError):
    """The input is malformed, or names no event or session."""


def read_json(text: bytes) -> object:
    """The JSON of a host; None if it is not JSON."""
    while text.startswith(_MARKS):
        text = text[len(_MARKS) :]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def folder_of(given: Mapping[str, Any]) -> str:
    """The folder in which the agent works; empty if the host names none."""
    return local_path(_text(given, "cwd") or next(iter(_texts(given.get("workspace_roots"))), ""))


def parse(given: object, event: str | None) -> HookCall | None:
    """Read the host's input; None for an event that needs nothing, and for one of a host that runs the hooks of
    another one in a form that is not known. `event`: named on the command line. Raises BadInputError."""
    if not isinstance(given, dict):
        raise NotAHookCallError("the input must be a JSON object")
    if event is not None and event not in EVENTS:
        raise BadInputError(f"the event must be one of {', '.join(EVENTS)}")
    name = _text(given, "hook_event_name", "hookEventName")
    found = event or _EVENT_OF.get(name.lower())
    session = _text(given, "conversation_id", "session_id", "sessionId")
    if name and found is None:
        return None
    if not (found and session):
        if not _FOREIGN.isdisjoint(given):
            return None
        raise NotAHookCallError(
            "session_id: is missing"
            if found
            else "hook_event_name: is missing; name the event in the command or the URL, such as pre-edit"
        )
    client = _client_of(given, name)
    folder = folder_of(given) or os.getcwd()
    agent = _text(given, "agent_id") or _text(given, "subagent_id")
    if client in SHARED_SERVER and found != "subagent-end":
        agent = agent or session
    tool = _text(given, "tool_name", "toolName") or ("Bash" if name in _SHELL_EVENTS else "")
    if found == "post-edit" and tool in READS:
        found = "read"
    tool_input = _object(given.get("tool_input", given.get("toolArgs"))) or given
    called = tool_input.get("agent") if "holdlog" in tool.lower() and tool.endswith(_NAMING) else None
    if tool and found != "read":
        changed = targets(tool, tool_input, folder)
    else:
        changed = Targets(tuple(named_path(tool_input) if tool or name else _plain_paths(tool_input)))
    if os.path.isdir(os.path.join(folder, _text(tool_input, *_SOURCES))) and _text(tool_input, *_SOURCES):
        changed = changed._replace(paths=tuple(f"{it}/" for it in changed.paths))
    if len(changed.paths) > MAX_PATHS:
        if found != "pre-edit":
            raise BadInputError(f"at most {MAX_PATHS} files in one call")
        changed = changed._replace(paths=(), problem=f"a call names more than {MAX_PATHS:,} files")
    return HookCall(
        event=found,  # type: ignore[arg-type]  # one of EVENTS
        name=name or found,
        client=client,
        session=session,
        agent=agent,
        folder=folder,
        paths=tuple(filter(_is_path, (_absolute(os.path.join(folder, path)) for path in changed.paths))),
        git=changed.git,
        reports=changed.reports,
        problem=changed.problem,
        lasts=(changed.reports or changed.git != ()) and _lasts(tool_input),
        patches=changed.reports and bool(re.search(_PATCH, _command_of(tool_input))),
        called_name=called if isinstance(called, str) else None,
        version=_text(given, "cursor_version")[:LONGEST_VERSION],
        claiming=_claimed(tool_input) if isinstance(called, str) and tool.endswith("claim") else (),
        resumes=_text(given, "reason") in ("clear", "resume"),
        prompt=_first_words(_text(given, "prompt")) if found in ("start", "prompt") else "",
    )


def denial(call: HookCall, reason: str) -> dict[str, Any]:
    """The output that keeps the host from running the tool."""
    if call.client in PLAIN:
        return {"decision": "deny", "reason": reason}
    claude = {
        "hookSpecificOutput": {
            "hookEventName": call.name,
            "permissionDecision": "deny",
            "permissionDecisionReason": reason,
        }
    }
    if call.client == "cursor":  # it also runs the hooks of Claude Code, under their names
        cursor = {"permission": "deny", "user_message": reason, "agent_message": reason}
        return cursor | (claude if call.name[:1].isupper() else {})
    if call.client == "vscode":  # Copilot reads it at the top
        return {"permissionDecision": "deny", "permissionDecisionReason": reason} | claude
    return claude


def warning(call: HookCall, text: str) -> dict[str, Any]:
    """The output that lets the host run the tool, and warns the agent."""
    if call.client == "cursor":
        return {"agent_message": text}
    if call.client in PLAIN:
        return {"warning": text}
    if call.client == "codex":
        return {"systemMessage": text}
    return {"hookSpecificOutput": {"hookEventName": call.name, "additionalContext": text}}


def ask_person(call: HookCall, text: str) -> dict[str, Any]:
    """The output that lets a person decide. Codex cannot ask, so it shows the text; a plain client denies the call."""
    if call.client == "cursor":
        return {"permission": "ask", "user_message": text, "agent_message": text}
    if call.client in PLAIN:
        return denial(call, f"{text} Ask your user to make it.")
    if call.client == "codex":
        return {"systemMessage": text}
    decision = {"hookEventName": call.name, "permissionDecision": "ask", "permissionDecisionReason": text}
    return {"hookSpecificOutput": decision}


def ask_afterwards(call: HookCall) -> dict[str, Any]:
    """The output that lets a plain client report the end of a shell command, too: other hosts always do."""
    return {"after": True} if call.client in PLAIN else {}


def is_denial(output: Mapping[str, Any]) -> bool:
    """Whether an output keeps the host from running the tool."""
    inner = output.get("hookSpecificOutput", {})
    return "deny" in (output.get("permission"), output.get("decision"), inner.get("permissionDecision"))


def add_context(call: HookCall, text: str) -> dict[str, Any]:
    """The output that adds text to the agent's context."""
    text = text if len(text) <= MAX_CONTEXT else f"{text[: MAX_CONTEXT - 1]}…"
    if call.client == "cursor":
        return {"additional_context": text}
    if call.client in PLAIN:
        return {"context": text}
    return {"hookSpecificOutput": {"hookEventName": call.name, "additionalContext": text}}


def _client_of(given: Mapping[str, Any], name: str) -> Client:
    if "cursor_version" in given or "workspace_roots" in given:
        return "cursor"
    if name and not _FOREIGN.union({"timestamp"}).isdisjoint(given):
        return "vscode"
    if name[:1].islower():
        return "cursor"
    if not name:
        return "opencode" if given.get("client") == "opencode" else "agent"
    return "codex" if "turn_id" in given or given.get("tool_name") == "apply_patch" else "claude"


def _claimed(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The resources that a call of our tool `claim` names."""
    return (*_texts([given.get("resource")]), *_texts(given.get("also")), *_texts(given.get("alternatives")))


def _plain_paths(given: Mapping[str, Any]) -> list[str]:
    """The paths in the plain form. Raises NotAHookCallError."""
    paths = given.get("paths")
    if paths is None:
        paths = []
    if not isinstance(paths, list) or len(_texts(paths)) < len(paths):
        raise NotAHookCallError("paths: must be a list of paths")
    return [*named_path(given), *paths]


def _object(given: object) -> dict[str, Any]:
    """The input of a tool, which Cursor passes as JSON in a string for MCP. A text that is not JSON is a patch."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return {"input": given}
    return given if isinstance(given, dict) else {}


def _text(given: Mapping[str, Any], *names: str) -> str:
    """The first text of these fields, empty if they are missing. Characters that neither a path nor UTF-8 can have are
    replaced."""
    found = next((given[name] for name in names if isinstance(given.get(name), str) and given[name]), "")
    return str(found).replace("\0", "?").encode(errors="replace").decode()


def _lasts(given: Mapping[str, Any]) -> bool:
    """Whether a shell command may run on in the background."""
    return any(given.get(it) is True for it in _IN_BACKGROUND) or bool(re.search(_LASTING, _command_of(given)))


def _command_of(given: Mapping[str, Any]) -> str:
    command = given.get("command") or given.get("cmd") or ""
    return " ".join(_texts(command)) if isinstance(command, list) else str(command)


def _first_words(text: str) -> str:
    """The first words in one line of visible characters, at most `MAX_PROMPT` of them."""
    words = "".join(it for it in " ".join(text[:_MAX_EXAMINED].split()) if it.isprintable())
    if len(words) <= MAX_PROMPT:
        return words
    cut = words[:MAX_PROMPT]
    return f"{cut[:-1].rpartition(' ')[0] or cut[:-1]}…"


def _absolute(path: str) -> str:
    return os.path.abspath(path) + "/" * (path.endswith("/") and path.strip("/") != "")


def _is_path(path: str) -> bool:
    """Whether a file can have this path."""
    try:
        return "\0" not in path and len(os.fsencode(path)) < LONGEST_PATH
    except UnicodeEncodeError:
        return False


def _texts(given: object) -> list[str]:
    return [it for it in given if isinstance(it, str) and it] if isinstance(given, list) else []
