"""Where holdlog meets the world: stores, notifications, tools, command line. Only compose.py names concrete classes."""
