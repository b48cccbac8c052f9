"""JSON of the API server, of reviews and of pods → frozen objects."""
