def g(): pass
class C:
    def m(self):
        def f(a):
            return a