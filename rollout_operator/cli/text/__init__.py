"""The output of commands: the state of a namespace, its changes, a frame that is drawn anew."""
