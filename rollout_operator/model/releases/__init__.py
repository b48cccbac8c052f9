"""Moving to a version: the resources of `kuberik.com` as they were read."""
