"""Threads: messages and results of agents in a run, and the data that they share."""
