"""Engines behind a URL: which may be asked, how, and what their answers mean. Knows no model of ours."""
