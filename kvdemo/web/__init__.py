"""What stands between the page and the network."""
