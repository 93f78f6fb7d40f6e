"""A store copied to another place, of either kind (docs/decisions/0021-copy-and-seal.md)."""
