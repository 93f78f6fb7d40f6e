"""NATS: publishes the log."""
