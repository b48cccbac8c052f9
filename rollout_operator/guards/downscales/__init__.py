"""Downscales underway: what reviews and controllers must both know."""
