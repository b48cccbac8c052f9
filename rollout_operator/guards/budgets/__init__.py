"""Disruption budgets: what evictions and rollouts must both obey."""
