"""One Starlette application for many: MCP, key-value API, events, operations, a page."""
