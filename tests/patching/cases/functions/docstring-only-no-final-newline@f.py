def f(a):
    """doc
    more"""