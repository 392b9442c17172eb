"""Building blocks of the page that no tab owns."""
