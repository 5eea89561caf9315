"""What is known of serving engines, as data."""
