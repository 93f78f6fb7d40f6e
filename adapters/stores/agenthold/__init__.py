"""Files of agenthold, whose histories become events (docs/decisions/0053-credentials-and-agenthold.md)."""
