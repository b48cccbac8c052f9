"""Look after downscales that were allowed, until they have happened or their pods stay."""
