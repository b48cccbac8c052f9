"""What a namespace looks like to a person: the tree that every outlet renders."""
