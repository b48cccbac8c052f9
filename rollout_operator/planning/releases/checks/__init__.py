"""HealthChecks that this operator evaluates: what they look at, and what becomes of it."""
