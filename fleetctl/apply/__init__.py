"""Walks a plan: lock, audit, apply, watch, freeze the evidence."""
