"""What objects of releases are: Rollouts, gates, schedules, HealthChecks and what Flux has."""
