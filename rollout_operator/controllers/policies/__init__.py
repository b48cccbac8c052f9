"""Make a MultiAZRollout happen: what it owns is replaced zone by zone, and its status says so."""
