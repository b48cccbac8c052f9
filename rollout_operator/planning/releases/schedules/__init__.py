"""Schedules of releases: when they are active, and which gates they keep."""
