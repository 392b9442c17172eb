"""kvdemo: what a KV cache buys, and what it costs, on a real language model."""

__version__ = "0.1.0"
