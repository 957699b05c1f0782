"""TensorFlow's Grappler: which kernels a CPU build without XLA runs. Each operation is one, unless a pattern fuses it.

Sources: tensorflow/core/grappler/optimizers of TensorFlow 2.13, remapper.cc above all, and Keras for what is one call.

Start with `meta_optimizer.py`, the policy. A program is read as TensorFlow's operations (`op_names.py`, `api_calls.py`,
`normalisation_calls.py`; all ask `node_matcher.py`) into an `op_graph.py`. The passes work on that graph:
`arithmetic_optimizer.py` with `sum_trees.py`, then `remapper_patterns.py` and, for oneDNN, `onednn_patterns.py`.
"""
