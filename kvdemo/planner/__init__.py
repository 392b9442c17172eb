"""Memory without weights."""
