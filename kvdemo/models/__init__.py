"""Which model, and getting it into memory."""
