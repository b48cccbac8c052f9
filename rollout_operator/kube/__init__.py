"""The only way to the API server: calls, watches, caches."""
