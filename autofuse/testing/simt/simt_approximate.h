// Instructions that approximate, under the names that generated kernels call: rounded correctly, or as short as they are
// documented to be. Subnormal operands count as zeros, and subnormal results become zeros. Part of simt.h.
#pragma once

namespace simt {

inline float flushed(double x) { return fabs(x) < 0x1p-126 ? (signbit(x) ? -0.0f : 0.0f) : float(x); }

// To eleven bits, cut off: within 2**-11 of the value, and never nearer than that allows to think.
inline float eleven_bits(float x) { return x != x || isinf(x) ? x : bits<float>(bits<uint32_t>(x) & 0xfffff000u); }

}  // namespace simt

inline float approximate_reciprocal(float x) { return simt::flushed(1.0 / simt::flushed(x)); }
// A product with the reciprocal, which is 0 for divisors beyond 2**126.
inline float approximate_divide(float x, float y) {
    const double size = fabs(double(y));
    if (size > 0x1p126) return simt::flushed(x) * (signbit(y) ? -0.0f : 0.0f);
    return simt::flushed(double(simt::flushed(x)) / double(simt::flushed(y)));
}
inline float approximate_sqrt(float x) { return simt::flushed(sqrt(double(simt::flushed(x)))); }
inline float approximate_rsqrt(float x) { return simt::flushed(1.0 / sqrt(double(simt::flushed(x)))); }
inline float approximate_exp2(float x) { return simt::flushed(exp2(double(simt::flushed(x)))); }
inline float approximate_log2(float x) { return simt::flushed(log2(double(simt::flushed(x)))); }
inline float approximate_sin(float x) { return simt::flushed(sin(double(simt::flushed(x)))); }
inline float approximate_cos(float x) { return simt::flushed(cos(double(simt::flushed(x)))); }
inline float approximate_tanh(float x) { return simt::eleven_bits(tanhf(x)); }
