"""Who may do what: tokens, principals, grants. No surface and no store is known here."""
