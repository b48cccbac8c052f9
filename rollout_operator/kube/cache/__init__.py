"""Watch-fed caches."""
