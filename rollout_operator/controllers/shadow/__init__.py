"""Decide and report without acting, beside another operator: `-mode=shadow`."""
