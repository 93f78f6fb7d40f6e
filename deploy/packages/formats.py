"""The formats of manifests and configurations, as far as we write them, from the documents of each host as of November
2026. They are stricter than the hosts: a field that is not listed here is an error.

Sources: server.schema.json of 2025-12-11 (MCP registry), plugin.schema.json and mcp.schema.json of Agent Plugins 1.0.0,
"Plugins reference" and "Marketplace reference" of Claude Code, hooks of Claude Code, Codex and Cursor.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
Text = Annotated[str, StringConstraints(min_length=1)]
Version = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]
Url = Annotated[str, StringConstraints(pattern=r"^https://\S+$")]


class Format(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Person(Format):
    name: Text


# Servers


class Server(Format):
    """An entry of `mcpServers`."""

    command: Text
    args: list[str]


class Servers(Format):
    mcp_servers: dict[Name, Server] = Field(alias="mcpServers", min_length=1)


class CodexServer(Format):
    command: Text
    startup_timeout_sec: int
    tool_timeout_sec: int


class CodexConfig(Format):
    mcp_servers: dict[Name, CodexServer] = Field(min_length=1)


# Hooks


class Command(Format):
    """`timeout`: seconds."""

    type: Literal["command"]
    command: Text
    timeout: int = Field(ge=1, le=60)


class HookGroup(Format):
    matcher: Text | None = None
    hooks: list[Command] = Field(min_length=1)


class Hooks(Format):
    """Claude Code and Codex."""

    description: Text | None = None
    hooks: dict[
        Literal["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SubagentStop", "SessionEnd"],
        list[HookGroup],
    ]


class CursorCommand(Format):
    command: Text
    matcher: Text | None = None
    timeout: int = Field(ge=1, le=60)


CursorEvent = Literal[
    "sessionStart",
    "sessionEnd",
    "preToolUse",
    "postToolUse",
    "subagentStop",
    "beforeSubmitPrompt",
    "beforeShellExecution",
    "afterShellExecution",
    "beforeMCPExecution",
    "afterFileEdit",
    "beforeReadFile",
    "stop",
]


class CursorHooks(Format):
    version: Literal[1]
    hooks: dict[CursorEvent, list[CursorCommand]]


# Manifests


class Manifest(Format):
    """Of a plugin of Claude Code."""

    name: Name
    version: Version
    description: Text
    author: Person
    homepage: Url
    repository: Url
    license: Text
    keywords: list[Name]


class AgentPlugin(Manifest):
    schema_url: Literal["https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"] = Field(alias="$schema")


class AgentServer(Server):
    """The command is one program, found on PATH; its arguments and folder do not name the project."""

    type: Literal["stdio"]


class AgentServers(Format):
    schema_url: Literal["https://agent-plugins.org/schemas/1.0.0/mcp.schema.json"] = Field(alias="$schema")
    mcp_servers: dict[Name, AgentServer] = Field(alias="mcpServers", min_length=1)


class MarketplacePlugin(Format):
    name: Name
    source: Annotated[str, StringConstraints(pattern=r"^\./")]
    description: Text
    version: Version


class MarketplaceMetadata(Format):
    description: Text
    version: Version


class Marketplace(Format):
    name: Name
    owner: Person
    metadata: MarketplaceMetadata
    plugins: list[MarketplacePlugin] = Field(min_length=1)


# The MCP registry


class Repository(Format):
    url: Url
    source: Literal["github"]


class NamedArgument(Format):
    type: Literal["named"]
    name: Annotated[str, StringConstraints(pattern=r"^--[a-z-]+$")]
    value: Text


class Variable(Format):
    name: Annotated[str, StringConstraints(pattern=r"^[A-Z_]+$")]
    description: Text
    is_required: bool = Field(alias="isRequired")


class Stdio(Format):
    type: Literal["stdio"]


class Package(Format):
    registry_type: Literal["pypi"] = Field(alias="registryType")
    identifier: Name
    version: Version
    runtime_hint: Literal["uvx"] = Field(alias="runtimeHint")
    runtime_arguments: list[NamedArgument] = Field(alias="runtimeArguments")
    transport: Stdio
    environment_variables: list[Variable] = Field(alias="environmentVariables")


class RegistryEntry(Format):
    schema_url: Literal["https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"] = Field(
        alias="$schema"
    )
    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", max_length=200)]
    title: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    description: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    repository: Repository
    version: Version
    packages: list[Package] = Field(min_length=1)
