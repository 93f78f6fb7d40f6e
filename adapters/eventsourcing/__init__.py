"""The log as an application of the eventsourcing library, for read models."""
