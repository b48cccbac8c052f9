"""What commands print: the state of a namespace, its changes, a frame that is drawn anew."""
