"""Copies a store to a file or a database, from either kind of store (docs/decisions/0021-copy-and-seal.md)."""
