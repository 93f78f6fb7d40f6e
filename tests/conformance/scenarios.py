"""The scenarios of the suite that `holdlog serve` must pass, those that it passes with a few more tools, and those that
do not apply to holdlog. A scenario that is not listed fails the run, so that a person decides where it belongs."""

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
"""With `holdlog serve --transport http --tools all`, unchanged."""

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
"""With tools that return what the suite expects, and our resources under the names that it requests."""

NOT_OURS: Final = {
    "elicitation-sep1034-defaults": "holdlog sends no requests to clients",
    "elicitation-sep1330-enums": "holdlog sends no requests to clients",
    "http-custom-header-server-validation": "no tool of holdlog declares x-mcp-header",
    "input-required-result-basic-elicitation": "holdlog sends no requests to clients",
    "input-required-result-basic-list-roots": "holdlog sends no requests to clients",
    "input-required-result-basic-sampling": "holdlog sends no requests to clients",
    "input-required-result-capability-check": "holdlog sends no requests to clients",
    "input-required-result-multi-round": "holdlog sends no requests to clients",
    "input-required-result-multiple-input-requests": "holdlog sends no requests to clients",
    "input-required-result-non-tool-request": "holdlog sends no requests to clients",
    "input-required-result-request-state": "holdlog sends no requests to clients",
    "input-required-result-result-type": "holdlog sends no requests to clients",
    "input-required-result-tampered-state": "holdlog sends no requests to clients",
    "json-schema-2020-12": "no tool of holdlog has such a schema; FastMCP passes schemas on unchanged",
    "prompts-get-embedded-resource": "holdlog has no prompts",
    "prompts-get-simple": "holdlog has no prompts",
    "prompts-get-with-args": "holdlog has no prompts",
    "prompts-get-with-image": "holdlog has no prompts",
    "resources-read-binary": "values are JSON: no resource of holdlog is binary",
    "tools-call-elicitation": "holdlog sends no requests to clients",
    "tools-call-sampling": "holdlog sends no requests to clients",
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
    "holdlog does not offer the extension for background tasks: its waits are calls",
)
"""Scenario -> why it does not apply."""
