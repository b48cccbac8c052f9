"""What objects of any kind are at, by the rules of kstatus."""
