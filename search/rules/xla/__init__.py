"""XLA's pipelines of fusion rules: XLA:GPU as of early 2023, and XLA:CPU as of 2025/26. Both run instruction fusion.

Sources: XLA, service/instruction_fusion.cc, and what service/gpu and service/cpu add to it.

Start with `gpu_pipeline.py` and `cpu_pipeline.py`, the policies. `hlo_translation.py` makes XLA's instructions of a
program (`hlo.py`). `unit_graph.py` holds them as units (`unit.py`), which merge. `instruction_fusion.py` is the pass of
both backends. On GPUs `fusion_merger.py`, `multi_output_fusion.py` and `horizontal_fusion.py` follow. They ask
`gpu_fusible.py` what one kernel can be, and `performance_model.py` what it takes.
"""
