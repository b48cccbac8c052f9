"""`rollout-operator simulate`: the operator's own code on a copy of a cluster's objects."""
