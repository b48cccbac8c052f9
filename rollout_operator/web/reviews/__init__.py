"""Admission reviews: one module a hook, and what they share."""
