"""The simulated API server."""
