"""What people write: strict YAML, checked all at once, with file:line:col."""
