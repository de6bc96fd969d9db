"""What the stores do alike. A store may import it; it imports no store."""
