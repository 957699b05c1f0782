"""XLA:GPU's priority fusion: the merge that saves most by a model of time comes first. XLA fuses so since 2023.

Sources: OpenXLA, priority_fusion.cc, multi_output_fusion.cc and gpu_performance_model.cc above all.

Start with `fusion_queue.py`: the two policies, and the queue. `translation.py` makes the program of `instructions.py`
that XLA has when fusion begins; `gpu_module.py` holds its kernels while they merge. `vetoes.py` forbids merges and
`run_times.py` predicts what they save, from `cost_analysis.py` and from `emitters.py` for the `gpu_devices.py`.
`multi_output.py` is the pass behind the queue.
"""
