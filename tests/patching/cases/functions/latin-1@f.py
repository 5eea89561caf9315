# -*- coding: latin-1 -*-
def f(a):
    return 'é'