"""Claims on every surface: requests, responses, hints, and the rows of the board."""
