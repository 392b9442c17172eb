"""The model with what guards it: one thread, one line, limits, stops and kept caches."""
