"""A history as text and as one hash."""
