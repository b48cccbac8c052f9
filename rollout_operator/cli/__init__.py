"""What one types: the commands of the program."""
