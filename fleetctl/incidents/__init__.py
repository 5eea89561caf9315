"""The log of what failed, where and how often."""
