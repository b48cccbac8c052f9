"""How plain StatefulSets of several zones come under the operator."""
