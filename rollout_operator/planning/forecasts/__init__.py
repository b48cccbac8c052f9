"""When which version is deployed: the planners of releases and schedules, played ahead in time."""
