"""Bring the replicas of the zones of a group to what they should be."""
