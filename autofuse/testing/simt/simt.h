// What CUDA C takes for granted, on the host: one block at a time, its threads as fibers of one OS thread.
//
// What kernels see. What stands behind it is compiled once, not with each kernel (simt_machine.h).
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(bytes)
// thread_local, because a function may say both `__shared__ T a[n]` and `extern __shared__ T b[]`
#define __shared__ thread_local

struct uint3 {
    unsigned int x, y, z;
};
struct dim3 {
    unsigned int x = 1, y = 1, z = 1;
};

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace simt {

enum class Operation { sync, shuffle, ballot, matrix };

constexpr unsigned char poison = 0xff;

[[noreturn]] void fail(const char* format, ...);
void barrier(int line);
// Whether the test holds for some thread of the block, of which one runs at a time.
int barrier_or(int test, int line);
__attribute__((pure)) int lane();
// Waits until every lane of `mask` is here with the same mask; then lane i receives the payload of lane source(i).
uint64_t collective(Operation operation, unsigned int mask, uint64_t payload, int source, int line);
// Runs every block, `clustered` of them together. Returns 0, or 1 with a message.
int launch(void (*body)(void**), void** arguments, const unsigned int* grid, const unsigned int* block,
           unsigned char* shared, size_t shared_bytes, size_t redzone_bytes, int clustered, int reverse, char* message,
           size_t size);

template <typename T>
inline T shuffle(unsigned int mask, T value, int source, int line) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    uint64_t payload = 0;
    memcpy(&payload, &value, sizeof(T));
    payload = collective(Operation::shuffle, mask, payload, source, line);
    memcpy(&value, &payload, sizeof(T));
    return value;
}

inline int segment(int width) { return lane() / width * width; }
inline int up(int delta, int width) { return lane() - delta < segment(width) ? lane() : lane() - delta; }
inline int down(int delta, int width) { return lane() + delta >= segment(width) + width ? lane() : lane() + delta; }
inline int across(int mask, int width) { return (lane() ^ mask) >= segment(width) + width ? lane() : lane() ^ mask; }

template <typename V>
inline V* aligned(V* pointer, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(pointer) % bytes) fail("unaligned access of %zu bytes at %p", bytes, (const void*)pointer);
    return pointer;
}
#ifdef SIMT_COUNT  // simt_count.cpp
const void* assume_aligned(const void* pointer, size_t bytes);
void* assume_aligned(void* pointer, size_t bytes);
#else
inline const void* assume_aligned(const void* pointer, size_t bytes) { return aligned(pointer, bytes); }
inline void* assume_aligned(void* pointer, size_t bytes) { return aligned(pointer, bytes); }
#endif

template <size_t...>
struct Numbers {};
template <size_t n, size_t... behind>
struct UpTo : UpTo<n - 1, n - 1, behind...> {};
template <size_t... all>
struct UpTo<0, all...> {
    using type = Numbers<all...>;
};

template <typename... A, size_t... I>
inline void call(void (*function)(A...), void** arguments, Numbers<I...>) {
    function(static_cast<A>(arguments[I])...);
}
template <typename... A>
inline void call(void (*function)(A...), void** arguments) {
    call(function, arguments, typename UpTo<sizeof...(A)>::type{});
}
// All arguments are one structure.
template <typename A>
inline void call_packed(void (*function)(A), void** arguments) {
    function(*reinterpret_cast<const A*>(arguments));
}

template <typename To, typename From>
inline To bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "");
    To result;
    memcpy(&result, &value, sizeof(To));
    return result;
}

// Rounds once, to nearest with ties to even.
__attribute__((const)) uint16_t half_bits(double x);
__attribute__((const)) float half_value(uint16_t bits);

}  // namespace simt

#define __syncthreads() simt::barrier(__LINE__)
#define __syncthreads_or(test) simt::barrier_or((test) ? 1 : 0, __LINE__)
#define __syncwarp(...) simt::collective(simt::Operation::sync, simt::full_or(__VA_ARGS__), 0, simt::lane(), __LINE__)
#define __ballot_sync(mask, test) \
    ((unsigned int)simt::collective(simt::Operation::ballot, mask, (test) ? 1 : 0, simt::lane(), __LINE__))
#define __any_sync(mask, test) (__ballot_sync(mask, test) != 0)
#define __all_sync(mask, test) (__ballot_sync(mask, test) == (mask))
#define __shfl_sync(mask, value, ...) simt::shuffle_from(mask, value, __LINE__, __VA_ARGS__)
#define __shfl_up_sync(mask, value, ...) simt::shuffle_up(mask, value, __LINE__, __VA_ARGS__)
#define __shfl_down_sync(mask, value, ...) simt::shuffle_down(mask, value, __LINE__, __VA_ARGS__)
#define __shfl_xor_sync(mask, value, ...) simt::shuffle_xor(mask, value, __LINE__, __VA_ARGS__)
#define __builtin_assume_aligned(pointer, bytes) simt::assume_aligned(pointer, bytes)

namespace simt {
inline unsigned int full_or(unsigned int mask = 0xffffffffu) { return mask; }
template <typename T>
inline T shuffle_from(unsigned int mask, T value, int line, int source, int width = 32) {
    return shuffle(mask, value, segment(width) + (source & (width - 1)), line);
}
template <typename T>
inline T shuffle_up(unsigned int mask, T value, int line, int delta, int width = 32) {
    return shuffle(mask, value, up(delta, width), line);
}
template <typename T>
inline T shuffle_down(unsigned int mask, T value, int line, int delta, int width = 32) {
    return shuffle(mask, value, down(delta, width), line);
}
template <typename T>
inline T shuffle_xor(unsigned int mask, T value, int line, int lanes, int width = 32) {
    return shuffle(mask, value, across(lanes, width), line);
}
}  // namespace simt

template <typename T> inline T __ldg(const T* from) { return *from; }
template <typename T> inline T atomicExch(T* at, T value) { T old = *at; *at = value; return old; }
template <typename T> inline T atomicAdd(T* at, T value) { T old = *at; *at = old + value; return old; }
template <typename T> inline T atomicMin(T* at, T value) { T old = *at; *at = value < old ? value : old; return old; }
template <typename T> inline T atomicMax(T* at, T value) { T old = *at; *at = value > old ? value : old; return old; }
template <typename T> inline T atomicCAS(T* at, T expected, T value) { T old = *at; if (old == expected) *at = value; return old; }
inline void __threadfence() {}
inline void __threadfence_block() {}

inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
inline int __clz(int x) { return x ? __builtin_clz((unsigned int)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline float __int_as_float(int x) { return simt::bits<float>(x); }
inline float __uint_as_float(unsigned int x) { return simt::bits<float>(x); }
inline int __float_as_int(float x) { return simt::bits<int>(x); }
inline unsigned int __float_as_uint(float x) { return simt::bits<unsigned int>(x); }
inline double __longlong_as_double(long long x) { return simt::bits<double>(x); }
inline long long __double_as_longlong(double x) { return simt::bits<long long>(x); }

struct __half {
    uint16_t bits;
};
struct __nv_bfloat16 {
    uint16_t bits;
};
inline float __half2float(__half x) { return simt::half_value(x.bits); }
inline __half __float2half_rn(float x) { return {simt::half_bits(x)}; }
inline __half __double2half(double x) { return {simt::half_bits(x)}; }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half __ushort_as_half(unsigned short x) { return {x}; }
inline float __bfloat162float(__nv_bfloat16 x) { return __uint_as_float((unsigned int)x.bits << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    const unsigned int bits = __float_as_uint(x);
    return {uint16_t(x != x ? 0x7fffu : (bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return {x}; }

#define SIMT_VECTORS(T, name) \
    struct name##2 { T x, y; }; \
    struct name##4 { T x, y, z, w; }; \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; } \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
SIMT_VECTORS(float, float)
SIMT_VECTORS(int, int)
SIMT_VECTORS(unsigned int, uint)

namespace simt {
// Waits for the threads of all blocks of the cluster.
void wait_for_cluster();
unsigned int number_in_cluster();
// Where a block of the cluster has what lies at `at` here.
void* in_cluster(const void* at, unsigned int number);
}  // namespace simt

inline void __cluster_barrier_arrive() {}
inline void __cluster_barrier_wait() { simt::wait_for_cluster(); }
inline unsigned int __clusterRelativeBlockRank() { return simt::number_in_cluster(); }
inline void* __cluster_map_shared_rank(const void* at, unsigned int number) { return simt::in_cluster(at, number); }

#include "simt_approximate.h"
#include "simt_matrix.h"
