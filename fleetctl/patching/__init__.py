"""Find the anchor, instrument, verify, overlay."""
