class f:
    def f(self):
        return 1


def f(a):
    return a
