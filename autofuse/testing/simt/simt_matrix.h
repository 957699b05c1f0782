// Matrix fragments and asynchronous copies, under the names that generated kernels call; on a GPU they are single
// instructions (targets/cuda/prelude.py). Part of simt.h; what they do is in simt_matrix.cpp.
#pragma once

namespace simt {

enum Kind { bfloat16_product, half_product, tf32_product, rows, columns };

void load_rows(unsigned int (&to)[4], const void* row, Kind kind);
void multiply(float (&sum)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1, Kind kind);
void copy_later(void* to, const void* from, int asked, int bytes);
void commit_copies();
void wait_for_copies(int left);

}  // namespace simt

#define SIMT_CALL inline __attribute__((always_inline))
SIMT_CALL void load_matrices(unsigned int (&to)[4], const void* row) { simt::load_rows(to, row, simt::rows); }
SIMT_CALL void load_transposed(unsigned int (&to)[4], const void* row) { simt::load_rows(to, row, simt::columns); }
SIMT_CALL void multiply_bfloat16(float (&sum)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    simt::multiply(sum, a, b0, b1, simt::bfloat16_product);
}
SIMT_CALL void multiply_half(float (&sum)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    simt::multiply(sum, a, b0, b1, simt::half_product);
}
SIMT_CALL void multiply_tf32(float (&sum)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    simt::multiply(sum, a, b0, b1, simt::tf32_product);
}
template <int bytes>
SIMT_CALL void copy_async(void* to, const void* from, int asked) { simt::copy_later(to, from, asked, bytes); }
SIMT_CALL void copy_commit() { simt::commit_copies(); }
template <int left>
SIMT_CALL void copy_wait() { simt::wait_for_copies(left); }
// Rounds to nearest, ties away from zero, as cvt.rna.tf32.f32 does.
SIMT_CALL float round_tf32(float x) {
    const unsigned int bits = __float_as_uint(x);
    return x != x || (bits & 0x7f800000u) == 0x7f800000u ? x : __uint_as_float((bits + 0x1000u) & 0xffffe000u);
}
