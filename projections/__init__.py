"""Views, folded from the log."""
