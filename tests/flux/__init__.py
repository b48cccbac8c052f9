"""Releases with the real controllers of Flux, and the record of what these write."""
