"""What is said of each reason beside its sentence, and which one comes first."""
