"""Findings about a host before the first restart."""
