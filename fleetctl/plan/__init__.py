"""Wanted and found to a plan, as data."""
