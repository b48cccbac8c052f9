"""`make demo-cluster`: stories of the operator on a real control plane, and the cluster to keep."""
