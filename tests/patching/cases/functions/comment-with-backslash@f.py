def f(a):  # hi
    # c \
    return a
