"""Look after disruptions that were granted, until they have happened or are released."""
