"""Redaction: requests and responses."""
