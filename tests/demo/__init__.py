"""``make demo``: the founding story on real hosts."""
