"""Between a process of the operator and the simulated world: the way, and what goes wrong on it."""
