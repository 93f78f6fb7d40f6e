"""What the log says now: views, history, waiting. Reads the domain, knows no store."""
