"""Exhaustive models of the protocols that more than one process takes part in.

`search` walks every state a model can reach, `grants` is the model of how a pod is allowed to go.
"""
