"""The tab Memory."""
