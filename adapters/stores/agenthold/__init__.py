"""Reads files of agenthold, and converts their histories to events (docs/decisions/0053-credentials-and-agenthold.md)."""
