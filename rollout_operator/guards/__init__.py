"""What webhooks and controllers must both obey: locks, and what is remembered of downscales."""
