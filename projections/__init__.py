"""Views of the log, history and waiting. Depends on the domain, not on stores."""
