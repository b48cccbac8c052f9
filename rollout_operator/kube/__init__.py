"""The only door to the API server: calls, watches, caches."""
