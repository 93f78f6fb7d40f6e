"""The key-value API over HTTP."""
