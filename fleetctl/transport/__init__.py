"""The only room that opens connections."""
