"""Authorization: tokens, principals and grants. Does not depend on any surface or store."""
