"""Objects with a `scale` that zones mirror."""
