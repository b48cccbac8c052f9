"""The documentation as a site: what makes it, and what is generated for it."""
