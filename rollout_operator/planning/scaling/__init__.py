"""How many replicas each zone of a group should have."""
