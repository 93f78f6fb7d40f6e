"""What all stores share of the log: how events are encoded, examined, rebuilt and sealed."""
