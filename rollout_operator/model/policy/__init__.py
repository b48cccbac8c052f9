"""A MultiAZRollout as it was read, and the zones of its StatefulSets."""
