"""The words of the domain: frozen data, no behaviour that touches the world."""
