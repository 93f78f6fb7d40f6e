"""One Starlette application for many clients: MCP, key-value API, events, operations, a page."""
