"""Frozen dataclasses that every room shares; standard library only."""
