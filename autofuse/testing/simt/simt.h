// What CUDA C takes for granted, on the host: one block at a time, its threads as fibers of one OS thread.
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <math.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <utility>
#include <vector>

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

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace simt {

enum class State { ready, at_barrier, at_cluster, in_warp, done };
enum class Operation { sync, shuffle, ballot, matrix };

struct Fiber {
    ucontext_t start;
    jmp_buf resume;
    bool started;
    State state;
    uint3 index;
    int line;
    unsigned int mask;
    Operation operation;
    uint64_t payload, result;
    int source;
};

constexpr int most_threads = 1024, most_cluster = 16;
constexpr size_t stack_bytes = 256 * 1024;
constexpr unsigned char poison = 0xff;

struct Machine {
    Fiber all_fibers[most_threads * most_cluster];
    Fiber* fibers = all_fibers;  // of the block that is running
    char* stacks = nullptr;
    int stacked = 0;  // threads that have one
    int count = 0, current = 0, alive = 0, waiting = 0, step = 1;
    jmp_buf scheduler;
    void (*body)(void**) = nullptr;
    void** arguments = nullptr;
    char message[1024];
};

inline Machine machine;

[[noreturn]] inline void fail(const char* format, ...) {
    int used = snprintf(machine.message, sizeof machine.message, "block (%u, %u, %u), thread (%u, %u, %u): ", blockIdx.x,
                        blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    va_list list;
    va_start(list, format);
    vsnprintf(machine.message + used, sizeof machine.message - used, format, list);
    va_end(list);
    _longjmp(machine.scheduler, 2);
}

inline const char* name_of(Operation operation) {
    switch (operation) {
        case Operation::sync: return "__syncwarp";
        case Operation::shuffle: return "a shuffle";
        case Operation::matrix: return "a matrix instruction";
        default: return "a vote";
    }
}

[[noreturn]] inline void report_deadlock() {
    const Fiber* warp = nullptr;
    for (int i = 0; i < machine.count && !warp; ++i)
        if (machine.fibers[i].state == State::in_warp) warp = &machine.fibers[i];
    if (warp) {
        int missing = -1, base = int(warp - machine.fibers) / 32 * 32;
        for (int lane = 0; lane < 32 && missing < 0; ++lane) {
            const Fiber& other = machine.fibers[base + lane];
            if ((warp->mask >> lane & 1) && !(other.state == State::in_warp && other.mask == warp->mask &&
                                               other.operation == warp->operation))
                missing = lane;
        }
        fail("deadlock: thread %u waits in %s (line %d, mask 0x%08x) for lane %d, which never arrives with that mask",
             warp->index.x, name_of(warp->operation), warp->line, warp->mask, missing);
    }
    if (!machine.waiting) fail("deadlock: a block of a cluster waits for another one, which has ended or waits elsewhere");
    fail("deadlock: %d of %d threads wait at a barrier", machine.waiting, machine.alive);
}

inline void enter();
inline bool next_block();
inline bool all_ended();
inline int ready_thread();

#ifdef SIMT_COUNT  // simt_count.cpp
void ordered_block();
void ordered_warp(int first, unsigned int mask);
#else
inline void ordered_block() {}
inline void ordered_warp(int, unsigned int) {}
#endif

// The next ready fiber of the block that is running, in round-robin order; negative if there is none.
inline int ready_thread() {
    int next = machine.current;
    for (int tried = 0; tried < machine.count; ++tried) {
        next += machine.step;
        if (next == machine.count) next = 0;
        if (next < 0) next = machine.count - 1;
        if (machine.fibers[next].state == State::ready) return next;
    }
    return -1;
}

// Runs the next ready fiber, in round-robin order; returns when this one is chosen again.
inline void yield() {
    Fiber& self = machine.fibers[machine.current];
    int next = ready_thread();
    if (next >= 0 && &machine.fibers[next] == &self) return;
    if (self.state != State::done && _setjmp(self.resume)) return;
    if (next < 0 && next_block()) next = ready_thread();
    if (next < 0) {
        if (all_ended()) _longjmp(machine.scheduler, 1);
        report_deadlock();
    }
    Fiber& chosen = machine.fibers[next];
    machine.current = next;
    threadIdx = chosen.index;
    if (chosen.started) _longjmp(chosen.resume, 1);
    chosen.started = true;
    setcontext(&chosen.start);
}

inline void enter() {
    machine.body(machine.arguments);
    Fiber& self = machine.fibers[machine.current];
    self.state = State::done;
    --machine.alive;
    if (machine.waiting > 0 && machine.waiting == machine.alive)
        fail("barrier divergence: returns while %d threads wait at __syncthreads", machine.waiting);
    yield();
}

inline void barrier(int line) {
    Fiber& self = machine.fibers[machine.current];
    self.line = line;
    if (machine.alive < machine.count)
        fail("barrier divergence: reaches __syncthreads at line %d after %d threads returned", line,
             machine.count - machine.alive);
    if (++machine.waiting < machine.alive) {
        self.state = State::at_barrier;
        yield();
        return;
    }
    for (int i = 0; i < machine.count; ++i) {
        Fiber& other = machine.fibers[i];
        if (&other != &self && other.line != line)
            fail("barrier divergence: waits at line %d, thread %u at line %d", line, other.index.x, other.line);
    }
    machine.waiting = 0;
    ordered_block();
    for (int i = 0; i < machine.count; ++i) machine.fibers[i].state = State::ready;
}

inline int lane() { return machine.current % 32; }

// Waits until every lane of `mask` is here with the same mask; then lane i receives the payload of lane source(i).
inline uint64_t collective(Operation operation, unsigned int mask, uint64_t payload, int source, int line) {
    Fiber& self = machine.fibers[machine.current];
    const int base = machine.current / 32 * 32;
    if (!(mask >> lane() & 1)) fail("%s at line %d: mask 0x%08x leaves out the calling lane", name_of(operation), line, mask);
    if (!(mask >> source & 1))
        fail("%s at line %d: reads lane %d, which is not in mask 0x%08x", name_of(operation), line, source, mask);
    self.line = line, self.mask = mask, self.operation = operation, self.payload = payload, self.source = source;
    self.state = State::in_warp;
    bool complete = true;
    for (int i = 0; i < 32; ++i) {
        if (!(mask >> i & 1)) continue;
        if (base + i >= machine.count) fail("%s at line %d: mask names lane %d of a shorter warp", name_of(operation), line, i);
        const Fiber& other = machine.fibers[base + i];
        complete = complete && other.state == State::in_warp && other.mask == mask && other.operation == operation;
    }
    if (!complete) {
        yield();
        return self.result;
    }
    if (operation == Operation::sync) ordered_warp(base, mask);
    uint64_t votes = 0;
    for (int i = 0; i < 32; ++i)
        if ((mask >> i & 1) && machine.fibers[base + i].payload) votes |= uint64_t(1) << i;
    for (int i = 0; i < 32; ++i) {
        if (!(mask >> i & 1)) continue;
        Fiber& other = machine.fibers[base + i];
        other.result = operation == Operation::ballot ? votes : machine.fibers[base + other.source].payload;
        other.state = State::ready;
    }
    return self.result;
}

// Waits until the whole warp is here; the last to come does the work, given the warp's fibers.
template <typename Work>
inline void meet(uint64_t payload, Work work) {
    constexpr unsigned int all = 0xffffffffu;
    Fiber& self = machine.fibers[machine.current];
    Fiber* const warp = machine.fibers + machine.current / 32 * 32;
    if (warp + 32 > machine.fibers + machine.count) fail("a matrix instruction in a warp of fewer than 32 threads");
    self.line = 0, self.mask = all, self.operation = Operation::matrix, self.payload = payload, self.source = lane();
    self.state = State::in_warp;
    for (int i = 0; i < 32; ++i)
        if (warp[i].state != State::in_warp || warp[i].mask != all || warp[i].operation != Operation::matrix) return yield();
    work(warp);
    for (int i = 0; i < 32; ++i) warp[i].state = State::ready;
}

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
void counted_pack(const void* address, size_t bytes, bool write, void* place);
void counted_launch(const void* shared, size_t bytes);
void counted_block();
inline uint64_t count_every = 1;
// Not inlined, so that the place that it returns to is the pack's own.
__attribute__((noinline)) inline const void* assume_aligned(const void* pointer, size_t bytes) {
    counted_pack(aligned(pointer, bytes), bytes, false, __builtin_return_address(0));
    return pointer;
}
__attribute__((noinline)) inline void* assume_aligned(void* pointer, size_t bytes) {
    counted_pack(aligned(pointer, bytes), bytes, true, __builtin_return_address(0));
    return pointer;
}
#else
inline void counted_launch(const void*, size_t) {}
inline void counted_block() {}
constexpr uint64_t count_every = 1;
inline const void* assume_aligned(const void* pointer, size_t bytes) { return aligned(pointer, bytes); }
inline void* assume_aligned(void* pointer, size_t bytes) { return aligned(pointer, bytes); }
#endif

template <typename... A, size_t... I>
inline void call(void (*function)(A...), void** arguments, std::index_sequence<I...>) {
    function(static_cast<A>(arguments[I])...);
}
template <typename... A>
inline void call(void (*function)(A...), void** arguments) {
    call(function, arguments, std::index_sequence_for<A...>{});
}
// All arguments are one structure.
template <typename A>
inline void call_packed(void (*function)(A), void** arguments) {
    function(*reinterpret_cast<const std::remove_const_t<A>*>(arguments));
}

inline void forget_copies();
inline void begin_block(int number, uint3 index);

// Runs the blocks of a cluster, `blockIdx` being the first; mostly there is one.
inline bool run_block(int threads, int blocks) {
    forget_copies();
    machine.count = machine.alive = threads;
    machine.waiting = 0;
    machine.fibers = machine.all_fibers;
    for (int block = 1; block < blocks; ++block) begin_block(block, {blockIdx.x + block, blockIdx.y, blockIdx.z});
    begin_block(0, blockIdx);
    for (int n = 0; n < threads * blocks; ++n) {
        const int i = n % threads;
        Fiber& fiber = machine.all_fibers[n / threads * most_threads + i];
        fiber.started = false, fiber.state = State::ready, fiber.line = 0;
        fiber.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        getcontext(&fiber.start);
        fiber.start.uc_stack.ss_sp = machine.stacks + stack_bytes * n;
        fiber.start.uc_stack.ss_size = stack_bytes;
        fiber.start.uc_link = nullptr;
        makecontext(&fiber.start, enter, 0);
    }
    const int outcome = _setjmp(machine.scheduler);
    if (outcome) return outcome == 1;
    machine.current = machine.step > 0 ? 0 : threads - 1;
    Fiber& first = machine.fibers[machine.current];
    first.started = true;
    threadIdx = first.index;
    setcontext(&first.start);
    return false;
}

inline void begin_launch(int clustered, unsigned char* shared, size_t bytes);
inline const unsigned char* shared_of(int number);

// Runs every block, `clustered` of them together. Returns 0, or 1 with a message.
inline int launch(void (*body)(void**), void** arguments, const unsigned int* grid, const unsigned int* block,
                  unsigned char* shared, size_t shared_bytes, size_t redzone_bytes, int clustered, int reverse,
                  char* message, size_t size) {
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    machine.body = body, machine.arguments = arguments, machine.step = reverse ? -1 : 1;
    const int threads = int(block[0] * block[1] * block[2]);
    if (threads * clustered > machine.stacked) {
        if (machine.stacks) munmap(machine.stacks, stack_bytes * machine.stacked);
        machine.stacks = nullptr, machine.stacked = clustered > 1 ? threads * clustered : most_threads;
        void* memory = mmap(nullptr, stack_bytes * machine.stacked, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return machine.stacked = 0, snprintf(message, size, "no memory for stacks"), 1;
        machine.stacks = static_cast<char*>(memory);
    }
    const uint64_t blocks = uint64_t(grid[0]) * grid[1] * grid[2];
    if (clustered < 1 || clustered > most_cluster || grid[0] % clustered)
        return snprintf(message, size, "clusters of %d blocks in a grid of %u", clustered, grid[0]), 1;
    begin_launch(clustered, shared, shared ? shared_bytes + redzone_bytes : 0);
    counted_launch(shared, shared_bytes);
    for (uint64_t n = 0; n < blocks; n += count_every * clustered) {
        const uint64_t at = reverse ? blocks - clustered - n : n;
        blockIdx = {unsigned(at % grid[0]), unsigned(at / grid[0] % grid[1]), unsigned(at / grid[0] / grid[1])};
        if (shared) memset(shared, poison, shared_bytes + redzone_bytes);
        if (!run_block(threads, clustered)) return snprintf(message, size, "%s", machine.message), 1;
        counted_block();
        for (size_t i = 0; shared && i < redzone_bytes * clustered; ++i)
            if (shared_of(int(i / redzone_bytes))[shared_bytes + i % redzone_bytes] != poison)
                return snprintf(message, size, "block (%u, %u, %u) writes byte %zu of shared memory, of which it has %zu bytes",
                                blockIdx.x, blockIdx.y, blockIdx.z, shared_bytes + i % redzone_bytes, shared_bytes), 1;
    }
    return 0;
}

// Whether the test holds for some thread of the block, of which one runs at a time.
__attribute__((no_sanitize("thread"))) inline int barrier_or(int test, int line) {
    static int found = 0;
    barrier(line);
    found = 0;
    barrier(line);
    found |= test;
    barrier(line);
    return found;
}

template <typename To, typename From>
inline To bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "");
    To result;
    memcpy(&result, &value, sizeof(To));
    return result;
}

// Rounds once, to nearest with ties to even; `nearbyint` honours the default rounding mode.
inline uint16_t half_bits(double x) {
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const double size = fabs(x);
    if (size != size) return sign | 0x7e00;
    if (size >= 65520.0) return sign | 0x7c00;
    const int exponent = size < 0x1p-14 ? -14 : ilogb(size);
    return sign + uint16_t((exponent + 15) * 1024 + int(nearbyint(ldexp(size, 10 - exponent))) - 1024);
}

inline float half_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = exponent == 0 ? ldexpf(float(fraction), -24) : ldexpf(float(1024 + fraction), exponent - 25);
    if (exponent == 31) size = fraction ? NAN : INFINITY;
    return bits & 0x8000 ? -size : size;
}

}  // namespace simt

// What the compiler calls before an integer is divided by zero, by name (see runner.py). A GPU gives some number there and
// goes on; in C it is undefined, so that no kernel may do it.
extern "C" __attribute__((weak, visibility("hidden"))) void __ubsan_handle_divrem_overflow(void*, uintptr_t, uintptr_t) {
    simt::fail("an integer is divided by zero");
}

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

#include "simt_approximate.h"
#include "simt_cluster.h"
#include "simt_matrix.h"
