"""Release rollouts: a slice of their own, read only where `-releases` switches them on."""
