"""Records to a root, a label, a fingerprint and advice."""
