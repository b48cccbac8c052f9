"""An event loop whose time is free, and whose order a seed decides."""
