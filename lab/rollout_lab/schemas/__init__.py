"""What each kind is: defaults, patches, what is refused, and in which words."""
