"""What the stores in SQLite and PostgreSQL share: one text for each statement, one reader, one transaction."""
