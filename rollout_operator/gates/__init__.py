"""Health checks between zones: a slice that is loaded where the cluster has their kind."""
