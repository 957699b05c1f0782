"""Loop nests and accesses, in the form in which Inductor compares them."""

import numpy as np

from autofuse.fusion.atoms import AtomGraph
from autofuse.search.rules.inductor.code_generators import Cpp, Triton
from autofuse.search.rules.inductor.loop_bodies import Tracer
from autofuse.search.rules.inductor.loop_simplification import flexible_strides
from autofuse.search.rules.inductor.lowering_kinds import Program
from autofuse.search.rules.inductor.lowering_order import by_locality
from autofuse.testing.sketches import Sketch


def body_of(build, result, loads=()):
    """The body of a result that reads `loads` from memory and computes everything else."""
    program = Program(AtomGraph(build.finish([result]), contract=False), "cpp")
    node = program.graph.producers[result]
    return Tracer(program, lambda _, value: value in loads).body(node, program.kind(node))


CPU, GPU = Cpp(), Triton()


def nest_of(build, result, loads=(), code=CPU):
    return code.loop_rules.nest(body_of(build, result, loads))


def test_loops_over_contiguous_data_are_one():
    build = Sketch("plain")
    x = build.arg("f32[16,8,4]")
    result = build.op("negate", x)
    assert nest_of(build, result).outer == (512,)
    assert nest_of(build, result, code=GPU).outer == (16, 8, 4)


def test_a_bias_per_column_keeps_rows_apart():
    build = Sketch("bias")
    x, bias = build.arg("f32[16,8,4]"), build.arg("f32[4]")
    nest = nest_of(build, build.op("add", x, build.broadcast(bias, x, 2)))
    assert nest.outer == (128, 4)
    assert [read.sizes for read in nest.reads] == [(512,), (128, 4)]
    assert [read.nbytes for read in nest.reads] == [2048, 16]


def test_a_value_per_row_is_read_as_it_was_written():
    build = Sketch("rows")
    x = build.arg("f32[16,8]")
    total = build.reduce(x, 1)
    share = build.op("divide", x, build.broadcast(total, x, 0))
    reduction, division = nest_of(build, total), nest_of(build, share, [total])
    assert (reduction.outer, reduction.reduced, division.outer) == ((16,), (8,), (16, 8))
    assert reduction.reads[0] == division.reads[0]
    assert division.reads[1] == reduction.write
    assert division.reads[1].matches(reduction.write)


def test_a_shifted_read_is_another_access():
    build = Sketch("shifted")
    x = build.arg("f32[64]")
    kept = build.op("negate", x)
    shifted = build.op("slice", kept, start_indices=(1,), limit_indices=(64,), strides=(1,))
    read = nest_of(build, build.op("abs", shifted), [kept]).reads[0]
    assert not read.matches(nest_of(build, kept).write)


def test_loops_run_along_the_strides_of_most_addresses():
    build = Sketch("sideways")
    x, y = build.arg("f32[16,8]"), build.arg("f32[16,8]")
    body = body_of(build, build.op("add", build.transpose(x), build.transpose(y)))
    assert flexible_strides(body) == (1, 8)
    assert CPU.loop_rules.nest(body).outer == (16, 8)
    assert GPU.loop_rules.nest(body).outer == (8, 16)


def test_a_mask_keeps_loops_apart():
    build = Sketch("padded")
    x = build.arg("f32[16,8]")
    zero = build.constant(np.zeros((), np.float32))
    padded = build.op("pad", x, zero, edge_padding_low=(0, 1), edge_padding_high=(0, 0), interior_padding=(0, 0))
    assert nest_of(build, padded).outer == (16, 9)


def test_a_gather_touches_the_whole_table():
    build = Sketch("rows")
    table, rows = build.arg("f32[100,8]"), build.arg("i32[4,1]")
    picked = build.op(
        "gather",
        table,
        rows,
        offset_dims=(1,),
        collapsed_slice_dims=(0,),
        operand_batching_dims=(),
        start_indices_batching_dims=(),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, 8),
    )
    positions, elements = nest_of(build, picked).reads
    assert (positions.indirect, elements.indirect) == (False, True)
    assert elements.nbytes == 3200
    assert not elements.matches(elements)


def test_elements_of_masks_count_as_steps():
    build = Sketch("unrolled")
    x = build.arg("f32[16,3]")
    assert body_of(build, build.reduce(x, 1)).op_count == 5  # three loads, two additions
    assert body_of(build, build.reduce(x, 1)).read_count == 3


def test_a_value_joined_with_itself_is_walked_copy_by_copy():
    build = Sketch("repeated")
    x = build.arg("f32[16,8]")
    nest = nest_of(build, build.op("concatenate", x, x, x, dimension=1))
    assert nest.outer == (16, 3, 8)
    assert nest.write.sizes == (384,)


def test_operations_are_lowered_next_to_their_readers():
    build = Sketch("order")
    first, second = build.op("negate", build.arg("f32[8]")), build.op("abs", build.arg("f32[8]"))
    shared = build.op("exp", build.arg("f32[8]"))
    early, late = build.op("add", first, shared), build.op("multiply", second, shared)
    graph = build.finish([late, early])
    order = [node.output for node in by_locality(graph, graph.nodes)]
    assert order == [second, shared, late, first, early]
