"""Views outside the store, which commands rebuild from the log when they are missing."""
