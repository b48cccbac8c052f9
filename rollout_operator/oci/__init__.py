"""Registries of images: what a release is, read by its tag."""
