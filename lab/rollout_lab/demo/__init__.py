"""`rollout-operator demo`: the operator at work on a simulated cluster."""
