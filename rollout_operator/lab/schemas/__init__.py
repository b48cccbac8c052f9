"""What each kind is: defaults, what is refused, and in which words."""
