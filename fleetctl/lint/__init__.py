"""Findings about a profile before it reaches a host."""
