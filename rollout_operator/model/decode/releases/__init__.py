"""JSON of the resources of `kuberik.com`: what an absent field means, and what is refused."""
