"""How does it grow? One comparison per size of request."""
