"""Deploy SGLang to GPU hosts, watch it start, and name what broke it."""

__version__ = "0.1.0"
