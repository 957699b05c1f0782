"""Search: candidate space, solvers, policies, the tuner."""
