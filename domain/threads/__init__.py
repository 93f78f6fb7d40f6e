"""Threads: what agents said and found in a run, and the data that they share."""
