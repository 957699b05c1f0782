"""What no kernel computes, done on the device by its array library (CuPy): which calls, and how each is made."""
