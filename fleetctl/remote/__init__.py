"""Programs that run ON a host: standard library only, Python 3.8 or newer, shipped as source."""
