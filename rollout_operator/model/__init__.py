"""The words of the domain: frozen data, no behaviour with side effects."""
