"""HTTP servers of the operator: health, metrics and status for people and probes."""
