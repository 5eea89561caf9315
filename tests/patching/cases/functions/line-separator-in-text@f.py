x=' '
def f(a):
    return a
