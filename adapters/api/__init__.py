"""What every surface shares: checked requests, responses, hints. Runs nothing and imports no surface."""
