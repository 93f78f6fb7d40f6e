"""holdlog: a coordination store for AI agents. Versioned shared values and claims on resources, kept as a log of
events."""

__version__ = "0.2.0.dev0"
