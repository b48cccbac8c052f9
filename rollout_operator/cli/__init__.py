"""The commands of the program, as a person or a script types them."""
