"""What whoever runs the server sees of it: probes, figures, log, traces."""
