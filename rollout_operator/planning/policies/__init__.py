"""What a MultiAZRollout makes of the StatefulSets of its namespace."""
