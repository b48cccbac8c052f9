"""Keep the gates of schedules as their hours say, and write the statuses of schedules."""
