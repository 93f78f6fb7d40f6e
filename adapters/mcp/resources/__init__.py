"""Values and claims as MCP resources, with completions and updates."""
