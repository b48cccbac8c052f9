"""One `reconcile()` each. They carry out what `planning` decides and do not know one another."""
