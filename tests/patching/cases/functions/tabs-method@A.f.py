class A:
	def f(a):
		return a
