"""The log and its views in SQLite, PostgreSQL and memory."""
