"""When a new version is deployed: schedules, candidates, gates, health and bake."""
