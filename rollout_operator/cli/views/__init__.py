"""What commands print: the picture of a namespace, its changes, a frame that is drawn anew."""
