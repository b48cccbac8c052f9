"""What clients do, written once; importing a module here adds its sequences to the list."""
