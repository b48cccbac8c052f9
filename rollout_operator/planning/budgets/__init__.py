"""Whether a pod may be disrupted, as its budget has it."""
