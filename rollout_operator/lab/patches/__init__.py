"""Patches as the real API server applies them."""
