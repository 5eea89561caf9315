"""From a good and a bad profile to the guilty flag."""
