"""MCP over the pipes of one process."""
