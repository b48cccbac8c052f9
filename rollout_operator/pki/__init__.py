"""Certificates: issue, keep, serve, and make clients trust them."""
