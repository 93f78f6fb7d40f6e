"""Shared by all surfaces: checked requests, responses, hints. Runs nothing and imports no surface."""
