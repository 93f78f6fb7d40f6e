"""Random histories of claims against the oracle of tests/support/claim_rule.py, through the library alone."""
