"""Checks on every request before it is routed: bounds, limits, origins."""
