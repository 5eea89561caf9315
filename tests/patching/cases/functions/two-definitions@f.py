try:
    import x
    def f(a):
        return a
except ImportError:
    def f(a): return None
