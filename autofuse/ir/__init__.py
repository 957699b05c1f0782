"""The graph IR: types, ops, graph, builder, verifier, text form, interpreter, digest."""
