"""A store copied to another place, of either kind (docs/decisions/0020-copy-and-seal.md)."""
