def f(a):
    x = 1
    return a
