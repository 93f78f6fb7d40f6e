"""Run requests on an open store: engine, command handler, group commit, leases, waiting."""
