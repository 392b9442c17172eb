"""What the command line prints. Draws facts, asks for none."""
