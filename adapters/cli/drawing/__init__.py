"""Drawings of what agents did over time, as text and as SVG."""
