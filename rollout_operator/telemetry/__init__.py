"""What the process reports about itself: log lines, metrics, the last plan of each group."""
