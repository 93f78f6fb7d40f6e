"""`holdlog init`: writes the configuration of hosts, so that they start holdlog and run its hooks."""
