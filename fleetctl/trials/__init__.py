"""Trials on hosts: what a bisect launches, how it is judged, and how the host is left."""
