"""Composition: what opens the clients to a cluster, starts its parts in order, and stops them."""
