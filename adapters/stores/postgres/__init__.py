"""The store in a PostgreSQL database that servers on many hosts share."""
