"""The outside: HTTP in, the engine's door, an answer out. Thin."""
