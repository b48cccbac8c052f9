"""Roll out one group: the controller, and what carries its plans out."""
