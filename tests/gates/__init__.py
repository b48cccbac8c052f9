"""Tests of the slice `rollout_operator.gates`."""
