"""Runs PostgreSQL and NATS from their wheels, for `holdlog up` and for tests. Both start and stop together."""
