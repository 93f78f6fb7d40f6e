"""NATS: the log told to the world."""
