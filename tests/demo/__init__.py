"""`make demo`: a rollout over three zones on a real control plane, to be watched."""
