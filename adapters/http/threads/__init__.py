"""Threads over HTTP."""
