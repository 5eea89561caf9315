def f(a):
    """doc"""; x = 1
    return x
