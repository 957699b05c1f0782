"""Device functions that generated kernels share: only those a kernel uses are written in front of it."""

from __future__ import annotations

from autofuse.targets.cuda.approximations import FUNCTIONS as _APPROXIMATIONS
from autofuse.targets.cuda.approximations import NEEDS as _OF_APPROXIMATIONS
from autofuse.targets.cuda.draws import FUNCTIONS as _DRAWS
from autofuse.targets.cuda.draws import NEEDS as _OF_DRAWS

_FUNCTIONS: dict[str, str] = {
    "Pack": """\
template <typename T, int N>
struct __align__(sizeof(T) * N) Pack {
    T at[N];
};
""",
    "load_pack": """\
template <int N, typename T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* from) {
    return *static_cast<const Pack<T, N>*>(__builtin_assume_aligned(from, sizeof(T) * N));
}
""",
    "load_shifted": """\
// What starts at any place, out of the two packs that hold it; both must lie in the array.
template <int N, typename T, typename I>
__device__ __forceinline__ Pack<T, N> load_shifted(const T* array, I at) {
    constexpr int words = sizeof(T) * N / 4;
    const int shift = at & (N - 1), bytes = shift * sizeof(T);
    const T* const start = array + (at - shift);
    const Pack<T, N> low = load_pack<N>(start), high = load_pack<N>(start + (shift ? N : 0));
    unsigned int word[2 * words];
    memcpy(word, &low, sizeof low);
    memcpy(word + words, &high, sizeof high);
    #pragma unroll
    for (int step = words / 2; step > 0; step /= 2) {
        #pragma unroll
        for (int i = 0; i < 2 * words - step; ++i) word[i] = bytes & (4 * step) ? word[i + step] : word[i];
    }
    if (sizeof(T) < 4) {
        #pragma unroll
        for (int i = 0; i < words; ++i)
            word[i] = (unsigned int)(((unsigned long long)word[i + 1] << 32 | word[i]) >> 8 * (bytes & 3));
    }
    Pack<T, N> found;
    memcpy(&found, word, sizeof found);
    return found;
}
""",
    "store_pack": """\
template <typename T, int N>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, N>& value) {
    *static_cast<Pack<T, N>*>(__builtin_assume_aligned(to, sizeof(T) * N)) = value;
}
""",
    "load_matrices": """\
#ifdef __CUDACC__  // the simulated device has its own
// Four 8 x 8 matrices of 16-bit elements; each lane gives where a row starts, lanes 8 i to 8 i + 7 those of matrix i.
__device__ __forceinline__ void load_matrices(unsigned int (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((unsigned int)__cvta_generic_to_shared(row)) : "memory");
}
#endif
""",
    "load_transposed": """\
#ifdef __CUDACC__
__device__ __forceinline__ void load_transposed(unsigned int (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((unsigned int)__cvta_generic_to_shared(row)) : "memory");
}
#endif
""",
    "multiply_bfloat16": """\
#ifdef __CUDACC__
__device__ __forceinline__ void multiply_bfloat16(
    float (&sum)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif
""",
    "multiply_half": """\
#ifdef __CUDACC__
__device__ __forceinline__ void multiply_half(
    float (&sum)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif
""",
    "round_tf32": """\
#ifdef __CUDACC__
// To 10 bits behind the first, halves away from zero.
__device__ __forceinline__ float round_tf32(float x) {
    unsigned int result;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(x));
    return __uint_as_float(result);
}
#endif
""",
    "round_fragment": """\
__device__ __forceinline__ void round_fragment(unsigned int (&words)[4]) {
    #pragma unroll
    for (int n = 0; n < 4; ++n) words[n] = __float_as_uint(round_tf32(__uint_as_float(words[n])));
}
""",
    "multiply_tf32": """\
#ifdef __CUDACC__
__device__ __forceinline__ void multiply_tf32(
    float (&sum)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif
""",
    "copy_async": """\
#ifdef __CUDACC__
// `asked` bytes into shared memory, and zeros behind them, while the thread goes on.
template <int bytes>
__device__ __forceinline__ void copy_async(void* to, const void* from, int asked) {
    const unsigned int target = (unsigned int)__cvta_generic_to_shared(to);
    if (bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(target), "l"(from), "r"(asked) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :: "r"(target), "l"(from), "n"(bytes), "r"(asked) : "memory");
}
#endif
""",
    "copy_commit": """\
#ifdef __CUDACC__
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
#endif
""",
    "copy_wait": """\
#ifdef __CUDACC__
// Until no more than `left` of the latest groups are under way.
template <int left>
__device__ __forceinline__ void copy_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(left) : "memory"); }
#endif
""",
    "paired": """\
// Two elements of 16 bits in one register, the first in the low half.
template <typename T>
__device__ __forceinline__ unsigned int paired(T low, T high) {
    const T pair[2] = {low, high};
    unsigned int bits;
    memcpy(&bits, pair, sizeof bits);
    return bits;
}
""",
    "swizzled": """\
// Where a chunk of 16 bytes stands, so that the same chunk of eight neighbouring lines is in eight groups of banks.
template <int chunks>
__device__ __forceinline__ int swizzled(int line, int chunk) {
    const int turn = chunks >= 8 ? line & 7 : chunks == 4 ? line >> 1 & 3 : chunks == 2 ? line >> 2 & 1 : 0;
    return line * chunks + (chunk ^ turn);
}
""",
    "swizzled_words": """\
// The same where lanes read words: two neighbouring chunks of four lines are in eight groups of banks.
template <int chunks>
__device__ __forceinline__ int swizzled_words(int line, int chunk) {
    const int turn = chunks >= 8 ? (line & 3) << 1 | (line >> 2 & 1) : line & 2;
    return line * chunks + (chunk ^ turn);
}
""",
    "floor_divide": """\
template <typename T>
__device__ __forceinline__ T floor_divide(T a, T b) {
    return a / b - (a % b < 0);
}
""",
    "floor_modulo": """\
template <typename T>
__device__ __forceinline__ T floor_modulo(T a, T b) {
    const T rest = a % b;
    return rest < 0 ? rest + b : rest;
}
""",
    "clamp_index": """\
template <typename I, typename T>
__device__ __forceinline__ I clamp_index(T value, I lo, I hi) {
    if (value < T(0)) return (long long)value < (long long)lo ? lo : (I)value;
    return (unsigned long long)value > (unsigned long long)hi ? hi : (long long)value < (long long)lo ? lo : (I)value;
}
""",
    "round_half": """\
__device__ __forceinline__ float round_half(float x) { return __half2float(__float2half_rn(x)); }
""",
    "round_bfloat16": """\
// A single conversion is left to the units for special functions. One of two is not, and puts the first one where f32
// has its upper bits.
__device__ __forceinline__ float round_bfloat16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned int both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(x), "f"(0.0f));
    return __uint_as_float(both);
#else
    return __bfloat162float(__float2bfloat16_rn(x));
#endif
}
""",
    "saturate": """\
// Truncates; out of range gives the nearest end, NaN gives 0. `lo` and `hi` are `least` and `greatest + 1`.
template <typename I, typename F>
__device__ __forceinline__ I saturate(F x, F lo, F hi, I least, I greatest) {
    return x != x ? I(0) : x <= lo ? least : x >= hi ? greatest : (I)x;
}
""",
    "maximum": """\
template <typename T>
__device__ __forceinline__ T maximum(T a, T b) { return a != a || a > b ? a : b; }
""",
    "minimum": """\
template <typename T>
__device__ __forceinline__ T minimum(T a, T b) { return a != a || a < b ? a : b; }
""",
    "sign": """\
template <typename T>
__device__ __forceinline__ T sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x; }
""",
    "divide": """\
// Truncates; x / 0 is all ones, the least value / -1 is itself.
template <typename T>
__device__ __forceinline__ T divide(T a, T b) {
    if (b == T(0)) return T(-1);
    if (T(-1) < T(0) && b == T(-1)) return T(0ULL - (unsigned long long)a);
    return T(a / b);
}
""",
    "remainder_of": """\
// The sign is the dividend's; x % 0 is x.
template <typename T>
__device__ __forceinline__ T remainder_of(T a, T b) {
    if (b == T(0)) return a;
    if (T(-1) < T(0) && b == T(-1)) return T(0);
    return T(a % b);
}
""",
    "power": """\
// Wraps; a negative exponent gives the truncated reciprocal.
template <typename T>
__device__ __forceinline__ T power(T base, T exponent) {
    if (exponent < T(0)) return base == T(1) ? T(1) : base == T(-1) ? ((exponent & 1) ? T(-1) : T(1)) : T(0);
    unsigned long long result = 1, square = (unsigned long long)base;
    for (unsigned long long left = (unsigned long long)exponent; left; left >>= 1) {
        if (left & 1) result *= square;
        square *= square;
    }
    return T(result);
}
""",
    "shift_left": """\
template <typename U, typename T>
__device__ __forceinline__ T shift_left(T x, T n) { return U(n) < U(8 * sizeof(U)) ? T(U(x) << U(n)) : T(0); }
""",
    "shift_right_logical": """\
template <typename U, typename T>
__device__ __forceinline__ T shift_right_logical(T x, T n) { return U(n) < U(8 * sizeof(U)) ? T(U(x) >> U(n)) : T(0); }
""",
    "shift_right_arithmetic": """\
template <typename U, typename S, typename T>
__device__ __forceinline__ T shift_right_arithmetic(T x, T n) {
    return T(S(x) >> (U(n) < U(8 * sizeof(U)) ? U(n) : U(8 * sizeof(U) - 1)));
}
""",
    "cluster_barrier": """\
__device__ __forceinline__ void cluster_barrier() {
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}
""",
    "in_block": """\
// What the block of that number in the cluster has where this one has `*own`.
template <typename T>
__device__ __forceinline__ T in_block(T* own, unsigned int number) {
    return *static_cast<const T*>(__cluster_map_shared_rank(own, number));
}
""",
    "greater_first": """\
// Whether (a, at) comes before (b, bt): NaN first, then the greater value, then the earlier place.
template <typename T, typename I>
__device__ __forceinline__ bool greater_first(T a, I at, T b, I bt) {
    if (a != a) return b == b || at < bt;
    return b == b && (a > b || (a == b && at < bt));
}
""",
    "less_first": """\
// Whether (a, at) comes before (b, bt): NaN first, then the lesser value, then the earlier place.
template <typename T, typename I>
__device__ __forceinline__ bool less_first(T a, I at, T b, I bt) {
    if (a != a) return b == b || at < bt;
    return b == b && (a < b || (a == b && at < bt));
}
""",
    **_APPROXIMATIONS,
    **_DRAWS,
}
NAMES = frozenset(_FUNCTIONS)
"""What no buffer and no kernel may be called."""
_NEEDS = {
    "load_pack": ("Pack",),
    "store_pack": ("Pack",),
    "load_shifted": ("Pack", "load_pack"),
    "round_fragment": ("round_tf32",),
    **_OF_APPROXIMATIONS,
    **_OF_DRAWS,
}


class Prelude:
    """Collects the names of the device functions that one kernel uses."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._headers: set[str] = set()

    def use(self, name: str) -> str:
        """Note that `name` is called; returns it."""
        self._used.update((name, *_NEEDS.get(name, ())))
        return name

    def header(self, name: str) -> None:
        """Note that `name` must be included."""
        self._headers.add(name)

    def text(self) -> str:
        """Includes and functions, in a fixed order."""
        parts = [f"#include <{header}>\n" for header in sorted(self._headers)]
        if parts:
            parts.append("\n")
        parts.extend(body + "\n" for name, body in _FUNCTIONS.items() if name in self._used)
        return "".join(parts)
