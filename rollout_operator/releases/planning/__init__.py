"""The pure core of releases: a frozen snapshot of a Rollout in, a plan with its reasons out."""
