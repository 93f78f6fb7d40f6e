"""Who calls over HTTP, and what the caller may do."""
