"""The front end: an ordinary NumPy function becomes a graph.

Start at `traced.trace`. A copy of the function (`proxy`) runs on traced arrays (`tracer`); each NumPy call reaches its
implementation through `dispatch`; arrays live in `cells`, where views and in-place writes become functional. The
modules named after kinds of functions (`reductions`, `manipulation`, `linalg`, ...) register the implementations:
adding a function means adding one `@implements(np.name)` there.
"""
