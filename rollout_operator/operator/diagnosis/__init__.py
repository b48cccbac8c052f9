"""The reads of an installation from outside, for commands: rights to read mostly suffice."""
