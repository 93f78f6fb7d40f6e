"""The log and its views, in SQLite and in memory; opening, writing, rebuilding and examining them."""
