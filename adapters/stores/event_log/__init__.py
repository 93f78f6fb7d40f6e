"""What all stores share about the log: encode, audit, rebuild and seal."""
