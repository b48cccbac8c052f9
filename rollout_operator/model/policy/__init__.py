"""A MultiAZRollout as it was read."""
