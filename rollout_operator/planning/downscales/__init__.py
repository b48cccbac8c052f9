"""Whether a zone may lose pods, and which of them are asked first."""
