"""Deliberate errors in the operator, and whether the simulation sees them."""
