"""HOW it is found out: loads models, binds kernels, runs them, records. The only folder that imports torch."""
