"""Retention of former values: requests and responses."""
