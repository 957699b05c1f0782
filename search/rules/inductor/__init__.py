"""PyTorch Inductor: which values become buffers, and which buffers share a kernel.

Sources: torch/_inductor of torch 2.13, with the defaults of its config.py. Each module names the files it follows.

Start with `fusion_stages.py`, the policy. The first stage is `realisation.py`: it walks the program in
`lowering_order.py`, by the kinds of `lowering_kinds.py`, and counts what bodies hold (`loop_bodies.py`). The second is
`scheduler.py`: it merges the `scheduler_nodes.py` by what they share, if one of the `code_generators.py` agrees.
"""
