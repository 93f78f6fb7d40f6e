"""Where holdlog meets the world: stores, bells, tools, command line. Only compose.py names concrete classes."""
