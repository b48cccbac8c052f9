"""The pure core: a frozen picture of a group in, a plan with all its reasons out."""
