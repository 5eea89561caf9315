"""Logs and bundles to typed records."""
