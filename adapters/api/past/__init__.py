"""Requests about the past: the same queries, at an earlier position or time."""
