"""WHAT is tested: plain data and tiny loaders. Nothing here imports torch, so that listing 10,000 cases is instant."""
