"""Claims on every surface: arguments, answers, and the calls that stand in line."""
