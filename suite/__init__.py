"""HOW it is found out: loads models, binds kernels, runs them, and writes records. The only folder that imports torch."""
