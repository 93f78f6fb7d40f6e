"""`holdlog.toml`: the rules of a repository, committed with it."""
