"""What operators see of the server: probes, metrics, log, traces."""
