"""The device half: one kernel family a stem, NAME.cuh with its float64 reference NAME.py beside it."""
