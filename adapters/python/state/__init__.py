"""The library's State: AgentKit's State, stored in holdlog. Shared data, conversation, history hooks."""
