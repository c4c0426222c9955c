"""The types of processors: how each is read, checked and run. `registry.py` lists them."""
