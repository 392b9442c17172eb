"""The only way to run the model."""
