def f(a): "doc"; return a
