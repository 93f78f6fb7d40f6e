"""PostgreSQL and NATS from their wheels, for `holdlog up` and for tests: started together, ended together."""
