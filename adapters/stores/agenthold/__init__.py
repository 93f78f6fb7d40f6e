"""Reads files of agenthold, and converts their histories to events (docs/decisions/0053-secrets-retention-agenthold.md)."""
