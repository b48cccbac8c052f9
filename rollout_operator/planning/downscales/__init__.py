"""Whether a zone may lose pods, and which of them are called first."""
