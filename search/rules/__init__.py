"""The fusion rules of other compilers as policies, on this code generator: a folder for each compiler.

`grappler` is TensorFlow without XLA, `inductor` PyTorch's compiler. `xla` is XLA:GPU as of early 2023, and XLA:CPU.
`priority` is XLA:GPU since then, which fuses by a queue of priorities. Nothing in one folder knows of another.

What they share stands beside them. Start with `grouping.py`: kernels in the making, which every policy merges.
`graphqueries.py` looks at operands through views. `hlo_rewrites.py` and `grouped_dimensions.py` are what all versions
of XLA do alike: rewrites before fusion, and the dimensions of reductions and transposes.
"""
