"""Small functions of JAX's libraries, by family: what plans of them, of their gradients and batches must agree with."""
