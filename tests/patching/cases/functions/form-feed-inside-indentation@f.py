def f(a):
      return a

def g(): pass
