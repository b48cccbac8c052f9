"""`rollout-operator simulate -releases`: when which version would be deployed."""
