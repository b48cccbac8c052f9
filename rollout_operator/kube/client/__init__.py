"""Calls to the API server: one request and its answer, limited in rate and time."""
