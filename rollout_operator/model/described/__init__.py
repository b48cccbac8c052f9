"""Parts of `model.description` that only operators with a flag describe."""
