"""The MCP server: tools, schemas, and the stdio transport."""
