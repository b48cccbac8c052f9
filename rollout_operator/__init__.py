"""Rolling updates for stateful applications spread over availability zones."""

__version__ = "0.1.0"
