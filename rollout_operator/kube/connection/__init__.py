"""Where the API server is, and how this process identifies itself to it."""
