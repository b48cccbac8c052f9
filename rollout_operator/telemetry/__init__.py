"""What the process tells about itself: log lines, metrics, the last plan of each group."""
