"""What commands read of an installation from outside: rights to read are enough for most of it."""
