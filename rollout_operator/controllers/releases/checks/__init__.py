"""Evaluate HealthChecks of this operator's classes, and reset those that Rollouts select."""
