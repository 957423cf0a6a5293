"""The Ray engine: groups on the machines of a cluster. Ray places them; the driver alone writes the store.

engine   the driver's side: what is submitted, and what follows when it ends, raises, is refused or dies
worker   what happens on a worker: compare the code, train, tell
desk     where workers leave what they tell
"""
