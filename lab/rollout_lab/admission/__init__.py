"""The webhooks that the simulated API server calls."""
