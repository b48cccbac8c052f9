"""Rollouts of `kuberik.com` for people: nothing but what their objects say."""
