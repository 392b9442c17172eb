"""What rooms tell each other: frozen, slotted dataclasses. No torch, no pandas; all of it can be pickled."""
