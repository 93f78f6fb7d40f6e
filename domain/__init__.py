"""Deciders, events and results: standard library only, no I/O, clock or ids."""
