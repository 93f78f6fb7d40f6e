"""Claims: who may hold which resource, for how long, and who is next in the queue."""
