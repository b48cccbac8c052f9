"""Objects of Flux and one release: what is written, what they have yet to do, their health."""
