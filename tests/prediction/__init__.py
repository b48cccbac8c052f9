"""Whether `simulate` foresees what then happens: dumps of a real control plane, and their ends."""
