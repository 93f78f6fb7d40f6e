"""The library's State: AgentKit's State, stored in holdlog. Data whose changes are stored automatically, results,
hooks."""
