"""Which scenarios of the suite `holdlog serve` has to pass, which our server with a few more tools, and which say
nothing about holdlog. One that stands nowhere is a failure: somebody has to think about it."""

from typing import Final

REVISIONS: Final = ("2025-11-25", "2026-07-28")

SERVED: Final = frozenset(
    {
        "caching",
        "completion-complete",
        "dns-rebinding-protection",
        "http-header-validation",
        "input-required-result-ignore-extra-params",
        "input-required-result-missing-input-response",
        "input-required-result-unsupported-methods",
        "input-required-result-validate-input",
        "logging-set-level",
        "ping",
        "prompts-list",
        "resources-list",
        "sep-2164-resource-not-found",
        "server-initialize",
        "server-session-lifecycle",
        "server-sse-multiple-streams",
        "server-sse-polling",
        "tasks-status-notifications",
        "tools-call-error",
        "tools-list",
    }
)
"""By `holdlog serve --transport http --tools all` as it is."""

WITH_FIXTURES: Final = frozenset(
    {
        "completion-complete",
        "resources-read-text",
        "resources-subscribe",
        "resources-templates-read",
        "resources-unsubscribe",
        "server-stateless",
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-error",
        "tools-call-image",
        "tools-call-mixed-content",
        "tools-call-simple-text",
        "tools-call-with-logging",
        "tools-call-with-progress",
    }
)
"""By our server with tools that answer what the suite expects, and our resources under the names it asks for."""

NOT_OURS: Final = {
    "elicitation-sep1034-defaults": "holdlog asks clients for nothing",
    "elicitation-sep1330-enums": "holdlog asks clients for nothing",
    "http-custom-header-server-validation": "no tool of holdlog's declares x-mcp-header",
    "input-required-result-basic-elicitation": "holdlog asks clients for nothing",
    "input-required-result-basic-list-roots": "holdlog asks clients for nothing",
    "input-required-result-basic-sampling": "holdlog asks clients for nothing",
    "input-required-result-capability-check": "holdlog asks clients for nothing",
    "input-required-result-multi-round": "holdlog asks clients for nothing",
    "input-required-result-multiple-input-requests": "holdlog asks clients for nothing",
    "input-required-result-non-tool-request": "holdlog asks clients for nothing",
    "input-required-result-request-state": "holdlog asks clients for nothing",
    "input-required-result-result-type": "holdlog asks clients for nothing",
    "input-required-result-tampered-state": "holdlog asks clients for nothing",
    "json-schema-2020-12": "no tool of holdlog's has such a schema; schemas pass through FastMCP as they are",
    "prompts-get-embedded-resource": "holdlog has no prompts",
    "prompts-get-simple": "holdlog has no prompts",
    "prompts-get-with-args": "holdlog has no prompts",
    "prompts-get-with-image": "holdlog has no prompts",
    "resources-read-binary": "values are JSON: no resource of holdlog's is binary",
    "tools-call-elicitation": "holdlog asks clients for nothing",
    "tools-call-sampling": "holdlog asks clients for nothing",
} | dict.fromkeys(
    (
        "tasks-capability-negotiation",
        "tasks-dispatch-and-envelope",
        "tasks-lifecycle",
        "tasks-mrtr-composition",
        "tasks-mrtr-input",
        "tasks-request-headers",
        "tasks-request-state-removal",
        "tasks-required-task-error",
        "tasks-wire-fields",
    ),
    "holdlog does not offer the extension of background tasks: its waits are calls",
)
"""And why."""
