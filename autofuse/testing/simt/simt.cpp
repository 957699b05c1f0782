// One block at a time, its threads as fibers of one OS thread: barriers, what warps do together, launches.
#include "simt_machine.h"

#include <cstdarg>
#include <cstdio>
#include <sys/mman.h>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace simt {

constexpr size_t stack_bytes = 256 * 1024;

Machine machine;
Fiber all_fibers[most_threads * most_cluster];
Cluster cluster;
uint64_t count_every = 1;

[[noreturn]] void fail(const char* format, ...) {
    int used = snprintf(machine.message, sizeof machine.message, "block (%u, %u, %u), thread (%u, %u, %u): ", blockIdx.x,
                        blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    va_list list;
    va_start(list, format);
    vsnprintf(machine.message + used, sizeof machine.message - used, format, list);
    va_end(list);
    _longjmp(machine.scheduler, 2);
}

const char* name_of(Operation operation) {
    switch (operation) {
        case Operation::sync: return "__syncwarp";
        case Operation::shuffle: return "a shuffle";
        case Operation::matrix: return "a matrix instruction";
        default: return "a vote";
    }
}

[[noreturn]] void report_deadlock() {
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

// The next ready fiber of the block that is running, in round-robin order; negative if there is none.
int ready_thread() {
    int next = machine.current;
    for (int tried = 0; tried < machine.count; ++tried) {
        next += machine.step;
        if (next == machine.count) next = 0;
        if (next < 0) next = machine.count - 1;
        if (machine.fibers[next].state == State::ready) return next;
    }
    return -1;
}

void yield() {
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

void enter() {
    machine.body(machine.arguments);
    Fiber& self = machine.fibers[machine.current];
    self.state = State::done;
    --machine.alive;
    if (machine.waiting > 0 && machine.waiting == machine.alive)
        fail("barrier divergence: returns while %d threads wait at __syncthreads", machine.waiting);
    yield();
}

void barrier(int line) {
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

int lane() { return machine.current % 32; }

uint64_t collective(Operation operation, unsigned int mask, uint64_t payload, int source, int line) {
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

// Runs the blocks of a cluster, `blockIdx` being the first; mostly there is one.
bool run_block(int threads, int blocks) {
    forget_copies();
    machine.count = machine.alive = threads;
    machine.waiting = 0;
    machine.fibers = all_fibers;
    for (int block = 1; block < blocks; ++block) begin_block(block, {blockIdx.x + block, blockIdx.y, blockIdx.z});
    begin_block(0, blockIdx);
    for (int n = 0; n < threads * blocks; ++n) {
        const int i = n % threads;
        Fiber& fiber = all_fibers[n / threads * most_threads + i];
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

int launch(void (*body)(void**), void** arguments, const unsigned int* grid, const unsigned int* block,
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

int barrier_or(int test, int line) {
    static int found = 0;
    barrier(line);
    found = 0;
    barrier(line);
    found |= test;
    barrier(line);
    return found;
}

// `nearbyint` honours the default rounding mode: to nearest with ties to even.
uint16_t half_bits(double x) {
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const double size = fabs(x);
    if (size != size) return sign | 0x7e00;
    if (size >= 65520.0) return sign | 0x7c00;
    const int exponent = size < 0x1p-14 ? -14 : ilogb(size);
    return sign + uint16_t((exponent + 15) * 1024 + int(nearbyint(ldexp(size, 10 - exponent))) - 1024);
}

float half_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = exponent == 0 ? ldexpf(float(fraction), -24) : ldexpf(float(1024 + fraction), exponent - 25);
    if (exponent == 31) size = fraction ? NAN : INFINITY;
    return bits & 0x8000 ? -size : size;
}

}  // namespace simt

// What the compiler calls before an integer is divided by zero, by name (see runner.py). A GPU gives some number there
// and goes on; in C it is undefined, so that no kernel may do it.
extern "C" void __ubsan_handle_divrem_overflow(void*, uintptr_t, uintptr_t) { simt::fail("an integer is divided by zero"); }
