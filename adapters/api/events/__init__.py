"""Events as answers: which of them, in pages, and as they come."""
