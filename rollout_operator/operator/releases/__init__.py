"""Composition of release rollouts: what is followed of them, what wakes what, and what acts."""
