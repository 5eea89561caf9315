"""Sizes that bound what triage holds in memory and reads."""

from __future__ import annotations

WHOLE = 4 << 20  # bytes of text that are read whole; longer logs are read in windows
UNPACKED = 8 << 30  # bytes that a compressed log may unpack to; the rest counts as cut
