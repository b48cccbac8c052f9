"""Another world behind the same doors: an API server, controllers and kubelets, all simulated.

The operator's own code runs on it unmodified, in virtual time or in real time.
"""
