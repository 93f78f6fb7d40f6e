"""Events on every surface: filters, pages and views."""
