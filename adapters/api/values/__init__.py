"""Values on every surface: requests, responses, and what turns outcomes into responses."""
