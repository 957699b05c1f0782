"""The front end for StableHLO: a module of JAX, or of any other producer, becomes a function that can be traced.

Start at `function.from_stablehlo`. A module is read by jaxlib's MLIR bindings (`bindings`) and printed in MLIR's
generic form, which is read in one pass (`genericform`, `module`). Its main function is translated operation by
operation (`translation`) into a graph, which a trace takes over where the function is called.
The modules named after kinds of operations (`elementwise`, `shapes`, `contractions`, ...) hold the rules, by name of
operation, that `table` joins: adding an operation means adding one rule there. A rule sees an `operation.Operation`
and writes nodes through an `emitter.Emitter`; nothing but `bindings`, `module`, `genericform`, `operation`,
`attributes`, `constants` and `locations` knows MLIR. What a region computes on numbers is found by `bodies`.
"""
