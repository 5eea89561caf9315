"""A stand-in for SGLang: takes its arguments, walks a recorded start-up, answers its endpoints.

It is installed in a host as ``sglang`` and says ``replay`` in its output. Python 3.11 and the standard library.
"""
