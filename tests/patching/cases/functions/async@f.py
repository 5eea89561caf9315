async def f(a):
    await a
