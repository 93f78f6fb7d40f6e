"""Threads: AgentKit's State, stored; for programs, tools and routes."""
