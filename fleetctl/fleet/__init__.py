"""Many hosts at once."""
