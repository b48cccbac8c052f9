"""Which pods of a group are replaced next."""
