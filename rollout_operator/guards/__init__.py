"""What webhooks and controllers must both obey: locks, budgets, and records of downscales."""
