"""Every flag once, the grammar they are written in, and the help that names them."""
