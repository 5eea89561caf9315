@x
@y(
 1)
def f(a):
    @z
    def g(): pass
    return g
