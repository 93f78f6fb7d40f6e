"""Benchmarks: ratios to yardsticks, measured side by side in interleaved rounds. `python -m bench --help`."""
