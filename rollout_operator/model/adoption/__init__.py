"""What `rollout-operator adopt` reads, and what it proposes."""
