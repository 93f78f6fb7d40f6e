"""The Python library: StateStore, AsyncStateStore, claimed, State."""
