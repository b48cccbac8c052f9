"""The comparison with kuberik's rollout-controller: scenarios that both play."""
