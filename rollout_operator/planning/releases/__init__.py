"""When a new version is deployed: candidates, gates, health and bake."""
