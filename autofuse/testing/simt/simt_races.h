// Finds races: two threads of a block that touch one byte of shared memory, one of them writing, with no barrier between.
//
// Every thread has a clock that its warp's barriers advance, and knows how far it has seen each lane of its warp; a
// barrier of the block starts an epoch, before which all is ordered. An access is ordered after another if that is of an
// earlier epoch, of the same thread, or of a lane whose clock the thread has seen go on since.
#pragma once

#include "simt_machine.h"

namespace races {

struct Byte {
    uint32_t written_epoch = 0, read_epoch = 0;
    uint32_t written_clock = 0, read_clock = 0;
    uint16_t writer = 0, reader = 0;  // a thread; a warp
    uint32_t lanes = 0;               // of that warp, which read at that clock
    bool several = false;             // other warps read as well
};

inline uintptr_t begin, end;
inline std::vector<Byte> bytes;
inline uint32_t epoch = 1;
inline uint32_t clocks[simt::most_threads];
inline uint32_t seen[simt::most_threads][32];

inline void launch(uintptr_t first, uintptr_t last) {
    begin = first, end = last;
    bytes.assign(last - first, {});
    epoch = 1;
}

inline void block_met() { ++epoch; }

inline void warp_met(int first, unsigned int mask) {
    for (int lane = 0; lane < 32; ++lane)
        if (mask >> lane & 1) ++clocks[first + lane];
    for (int lane = 0; lane < 32; ++lane) {
        if (!(mask >> lane & 1)) continue;
        for (int other = 0; other < 32; ++other)
            if (mask >> other & 1) seen[first + lane][other] = clocks[first + other];
    }
}

inline bool is_ordered(int thread, int before, uint32_t clock) {
    return thread == before || (thread / 32 == before / 32 && seen[thread][before % 32] > clock);
}

[[noreturn]] inline void report(uintptr_t at, int other, const char* what) {
    simt::fail("race: %s byte %zu of shared memory, which thread %d %s, with no barrier between", what,
               size_t(at - begin), other, what[0] == 'r' ? "writes" : "touches");
}

inline void read(Byte& byte, uintptr_t at, int thread) {
    if (byte.written_epoch == epoch && !is_ordered(thread, byte.writer, byte.written_clock)) report(at, byte.writer, "reads");
    const uint16_t warp = uint16_t(thread / 32);
    if (byte.read_epoch != epoch) byte.read_epoch = epoch, byte.lanes = 0, byte.several = false, byte.reader = warp;
    if (byte.reader != warp) byte.several = true, byte.lanes = 0, byte.reader = warp;
    if (clocks[thread] > byte.read_clock || !byte.lanes) byte.lanes = 0, byte.read_clock = clocks[thread];
    byte.lanes |= 1u << thread % 32;
}

inline void write(Byte& byte, uintptr_t at, int thread) {
    if (byte.written_epoch == epoch && !is_ordered(thread, byte.writer, byte.written_clock))
        report(at, byte.writer, "writes");
    if (byte.read_epoch == epoch) {
        if (byte.several || byte.reader != thread / 32) report(at, byte.reader * 32, "writes");
        for (int lane = 0; lane < 32; ++lane)
            if ((byte.lanes >> lane & 1) && !is_ordered(thread, byte.reader * 32 + lane, byte.read_clock))
                report(at, byte.reader * 32 + lane, "writes");
    }
    byte.written_epoch = epoch, byte.written_clock = clocks[thread], byte.writer = uint16_t(thread);
}

// The current thread's access.
inline void touch(uintptr_t at, int size, bool is_write) {
    if (at < begin || at >= end) return;
    const int thread = simt::machine.current;
    for (uintptr_t byte = at; byte < at + size && byte < end; ++byte)
        is_write ? write(bytes[byte - begin], byte, thread) : read(bytes[byte - begin], byte, thread);
}

}  // namespace races
