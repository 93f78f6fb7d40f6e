"""The MCP server: tools, resources, and its two transports."""
