// The machine behind simt.h: its threads and blocks, compiled once into a library that all kernels of a process share.
#pragma once

#include "simt.h"

#include <csetjmp>
#include <ucontext.h>
#include <vector>

namespace simt {

enum class State { ready, at_barrier, at_cluster, in_warp, done };

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

struct Machine {
    Fiber* fibers = nullptr;  // of the block that is running
    char* stacks = nullptr;
    int stacked = 0;  // threads that have one
    int count = 0, current = 0, alive = 0, waiting = 0, step = 1;
    jmp_buf scheduler;
    void (*body)(void**) = nullptr;
    void** arguments = nullptr;
    char message[1024];
};

extern Machine machine;
extern Fiber all_fibers[most_threads * most_cluster];

struct Aside {  // of a block that is not running now
    int current, alive, waiting;
    uint3 index;
    std::vector<unsigned char> shared;
};

struct Cluster {
    int blocks = 1, block = 0;  // how many, and which of them is running
    Aside aside[most_cluster];
    unsigned char* shared = nullptr;
    size_t bytes = 0;  // with what must come back untouched
};

extern Cluster cluster;

// Runs the next ready fiber, in round-robin order; returns when this one is chosen again.
void yield();
// A block of the cluster that can go on, if there is one: it runs now.
bool next_block();
bool all_ended();
void begin_launch(int clustered, unsigned char* shared, size_t bytes);
// A block's shared memory, poisoned, and its threads, which have not begun.
void begin_block(int number, uint3 index);
const unsigned char* shared_of(int number);
void forget_copies();

extern uint64_t count_every;

#ifdef SIMT_COUNT  // simt_count.cpp
void ordered_block();
void ordered_warp(int first, unsigned int mask);
void counted_pack(const void* address, size_t bytes, bool write, void* place);
void counted_launch(const void* shared, size_t bytes);
void counted_block();
void counted_rows(const void* const* rows, int count, void* place);
void counted_copy(void* to, const void* from, int asked, int bytes, void* place);
void counted_arrival(void* to, int asked, int bytes);
#else
inline void ordered_block() {}
inline void ordered_warp(int, unsigned int) {}
inline void counted_launch(const void*, size_t) {}
inline void counted_block() {}
inline void counted_rows(const void* const*, int, void*) {}
inline void counted_copy(void*, const void*, int, int, void*) {}
inline void counted_arrival(void*, int, int) {}
#endif

}  // namespace simt
