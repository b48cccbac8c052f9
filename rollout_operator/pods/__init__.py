"""HTTP to pods: the calls that prepare them for a downscale and un-prepare them."""
