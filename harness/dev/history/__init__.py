"""The same runs by other code: what became slower, or sends more."""
