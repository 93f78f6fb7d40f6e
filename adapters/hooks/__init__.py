"""`holdlog hook`: what a host runs before its agent edits a file, and when a session or a turn begins or ends."""
