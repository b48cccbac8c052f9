"""`make demo-cluster`: a rollout on a real control plane, and the cluster to keep."""
