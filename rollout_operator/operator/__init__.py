"""Composition: opens the clients to a cluster, starts the parts in order, and stops them."""
