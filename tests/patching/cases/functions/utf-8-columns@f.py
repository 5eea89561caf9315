def f(a): 'é€'; return 'ü'
