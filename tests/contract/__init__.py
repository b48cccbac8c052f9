"""One contract, two worlds: the same sequences on the sandbox and on a real control plane."""
