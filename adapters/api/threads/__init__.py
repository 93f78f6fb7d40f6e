"""Threads: AgentKit's State, kept; for programs, tools and routes."""
