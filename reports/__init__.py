"""JUDGE AND SHOW: reads the records of a run and renders them. Nothing here imports torch."""
