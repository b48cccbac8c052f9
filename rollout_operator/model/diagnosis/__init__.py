"""An installation as it was read, and what is wrong with it."""
