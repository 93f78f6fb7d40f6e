"""The library's State: AgentKit's, kept. Data that writes itself down, results, hooks."""
