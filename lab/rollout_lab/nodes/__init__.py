"""Scheduler and kubelets, and the pods that they run."""
