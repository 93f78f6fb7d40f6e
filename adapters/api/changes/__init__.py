"""Differences, authorship and undo."""
