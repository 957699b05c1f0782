"""Device functions around instructions that approximate, and what is computed of them: see `fastmath`.

`.ftz`: subnormal operands count as zeros, and subnormal results become zeros. Without it each instruction takes three
or four more, which scale.
"""

from __future__ import annotations


def _instruction(name: str, instruction: str, operands: int = 1) -> str:
    """A device function of one instruction on floats. The simulated device has its own."""
    names = ("x", "y")[:operands]
    numbers = ", ".join(f"%{number}" for number in range(operands + 1))
    given = ", ".join(f'"f"({one})' for one in names)
    return (
        "#ifdef __CUDACC__\n"
        f"__device__ __forceinline__ float {name}({', '.join(f'float {one}' for one in names)}) {{\n"
        "    float result;\n"
        f'    asm("{instruction} {numbers};" : "=f"(result) : {given});\n'
        "    return result;\n"
        "}\n"
        "#endif\n"
    )


FUNCTIONS: dict[str, str] = {
    "approximate_divide": _instruction("approximate_divide", "div.approx.ftz.f32", 2),
    "approximate_reciprocal": _instruction("approximate_reciprocal", "rcp.approx.ftz.f32"),
    "approximate_sqrt": _instruction("approximate_sqrt", "sqrt.approx.ftz.f32"),
    "approximate_rsqrt": _instruction("approximate_rsqrt", "rsqrt.approx.ftz.f32"),
    "approximate_exp2": _instruction("approximate_exp2", "ex2.approx.ftz.f32"),
    "approximate_log2": _instruction("approximate_log2", "lg2.approx.ftz.f32"),
    "approximate_sin": _instruction("approximate_sin", "sin.approx.ftz.f32"),
    "approximate_cos": _instruction("approximate_cos", "cos.approx.ftz.f32"),
    "approximate_tanh": _instruction("approximate_tanh", "tanh.approx.f32"),
    "fast_exp": """\
__device__ __forceinline__ float fast_exp(float x) { return approximate_exp2(x * 1.442695041f); }
""",
    "fast_log": """\
__device__ __forceinline__ float fast_log(float x) { return approximate_log2(x) * 0.6931471806f; }
""",
    "fast_logistic": """\
__device__ __forceinline__ float fast_logistic(float x) {
    return approximate_reciprocal(1.0f + approximate_exp2(x * -1.442695041f));
}
""",
    "fast_tanh": """\
__device__ __forceinline__ float fast_tanh(float x) {
    return fmaf(approximate_reciprocal(1.0f + approximate_exp2(x * 2.885390082f)), -2.0f, 1.0f);
}
""",
    "rest_of_turns": """\
// What is left of an angle without whole turns, which 1.5 * 2**23 rounds off; a turn is given in two parts.
__device__ __forceinline__ float rest_of_turns(float x) {
    const float turns = fmaf(x, 0.1591549431f, 12582912.0f) - 12582912.0f;
    return fmaf(turns, 1.7484556e-7f, fmaf(turns, -6.2831855f, x));
}
""",
    "fast_sin": """\
__device__ __forceinline__ float fast_sin(float x) { return approximate_sin(rest_of_turns(x)); }
""",
    "fast_cos": """\
__device__ __forceinline__ float fast_cos(float x) { return approximate_cos(rest_of_turns(x)); }
""",
}
NEEDS: dict[str, tuple[str, ...]] = {
    "fast_exp": ("approximate_exp2",),
    "fast_log": ("approximate_log2",),
    "fast_logistic": ("approximate_exp2", "approximate_reciprocal"),
    "fast_tanh": ("approximate_exp2", "approximate_reciprocal"),
    "fast_sin": ("rest_of_turns", "approximate_sin"),
    "fast_cos": ("rest_of_turns", "approximate_cos"),
}
