"""Values on every surface: requests, responses, and the conversion of outcomes to responses."""
