"""The pure core: a frozen snapshot of a group in, a plan with all its reasons out."""
