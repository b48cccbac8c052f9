"""Carry out a MultiAZRollout: replace its pods zone by zone, and write its status."""
