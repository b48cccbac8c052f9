"""What is said of each reason beside its sentence, and which reason comes first."""
