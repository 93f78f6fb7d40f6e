"""The page in a real browser. One browser and one server for all of these tests (fixtures of package scope)."""
