"""Keep the gates of schedules as their hours want them, and write what schedules say."""
