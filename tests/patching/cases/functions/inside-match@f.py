match 1:
  case 1:
    def f(a):
        return a
