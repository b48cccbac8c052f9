"""The status page: one description of the namespace as HTML, JSON, text and a stream of news."""
