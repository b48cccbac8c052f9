"""Composition of release rollouts: their caches, what wakes what, and the controllers."""
