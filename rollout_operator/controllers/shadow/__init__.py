"""Decide and tell without acting, beside another operator: `-mode=shadow`."""
