// Counts what the threads of a warp ask of memory together, and finds races: the compiler's hooks for a race detector, in
// other hands.
// Part of the library of kernels that are compiled with -fsanitize=thread -DSIMT_COUNT; compiled without these hooks.
#include "simt_races.h"

#include <list>
#include <unordered_map>
#include <vector>

namespace {

enum Figure {
    requested_read, requested_written, needed_read, needed_written, fetched, sectors, ideal_sectors, wide, instructions,
    wavefronts, ideal_wavefronts, copied, figures
};
constexpr int sector_bytes = 32, banks = 32;

struct Buffer {
    uintptr_t begin, end;
    int wide;                            // bytes from which on an access is a wide one
    std::vector<unsigned char> touched;  // bit 0: read, bit 1: written
    uint64_t fetched = 0;                // bytes that were not in L1
};

// One instruction of one warp: what its lanes asked for so far.
struct Group {
    int lanes = 0, size = 0;
    bool write = false;
    uint32_t which = 0;  // lanes, a bit each: they come in any order
    uintptr_t at[32] = {};  // of each lane

    void add(int lane, uintptr_t address) { at[lane] = address, which |= 1u << lane, ++lanes; }
    bool has(int lane) const { return which >> lane & 1; }
    uintptr_t first() const { return at[__builtin_ctz(which)]; }
};

// A block's share of L1: the sectors that were read last, and which of their bytes somebody asked for.
struct Cache {
    struct Line {
        uint32_t bytes;
        std::list<uintptr_t>::iterator place;
    };
    size_t capacity = 0;
    std::list<uintptr_t> order;  // the one used last in front
    std::unordered_map<uintptr_t, Line> lines;

    // How many of these bytes of a sector were not asked for since it came.
    int ask(uintptr_t sector, uint32_t bytes) {
        auto known = lines.find(sector);
        if (known != lines.end()) {
            order.splice(order.begin(), order, known->second.place);
            const int fresh = __builtin_popcount(bytes & ~known->second.bytes);
            known->second.bytes |= bytes;
            return fresh;
        }
        if (lines.size() >= capacity && !order.empty()) {
            lines.erase(order.back());
            order.pop_back();
        }
        order.push_front(sector);
        lines[sector] = {bytes, order.begin()};
        return __builtin_popcount(bytes);
    }
};

struct Pack {
    uintptr_t begin = 0, end = 0;
    int left = 0;
};

std::vector<Buffer> buffers;
uintptr_t shared_begin, shared_end;
std::unordered_map<uintptr_t, uint32_t> places;          // of instructions, numbered
std::vector<uint32_t> times[simt::most_threads * simt::most_cluster];        // that a thread came by each
std::unordered_map<uint64_t, Group> open;
Pack packs[simt::most_threads * simt::most_cluster];
uint64_t found[figures];
uint64_t under_way[simt::most_threads * simt::most_cluster];  // bytes of copies that a thread has not waited for
Cache cache;

Buffer* buffer_of(uintptr_t at) {
    for (Buffer& buffer : buffers)
        if (at >= buffer.begin && at < buffer.end) return &buffer;
    return nullptr;
}

// A byte that several lanes ask for is asked for once.
void finish_global(const Group& group) {
    std::unordered_map<uintptr_t, uint32_t> asked;  // bytes of each sector
    for (int lane = 0; lane < 32; ++lane)
        for (uintptr_t byte = group.at[lane]; group.has(lane) && byte < group.at[lane] + group.size; ++byte)
            asked[byte / sector_bytes] |= 1u << byte % sector_bytes;
    int bytes = 0, arrived = 0;
    for (const auto& [sector, which] : asked) {
        bytes += __builtin_popcount(which);
        if (!group.write) arrived += cache.ask(sector, which);
    }
    found[fetched] += arrived;
    found[group.write ? requested_written : requested_read] += bytes;
    Buffer* buffer = buffer_of(group.first());
    if (buffer) buffer->fetched += arrived;
    if (buffer && group.size >= buffer->wide) found[wide] += bytes;
    found[sectors] += asked.size();
    found[ideal_sectors] += (bytes + sector_bytes - 1) / sector_bytes;
    ++found[instructions];
}

// Each wavefront serves a word of every bank. Accesses of 8 and 16 bytes go by half and quarter warps.
void finish_shared(const Group& group) {
    const int together = group.size <= 4 ? 32 : 128 / group.size;
    for (int first = 0; first < 32; first += together) {
        std::vector<uintptr_t> words[banks];
        for (int lane = first; lane < first + together; ++lane)
            for (uintptr_t word = group.at[lane] / 4; group.has(lane) && word <= (group.at[lane] + group.size - 1) / 4; ++word) {
                auto& bank = words[word % banks];
                bool known = false;
                for (uintptr_t other : bank) known = known || other == word;
                if (!known) bank.push_back(word);
            }
        size_t most = 0, all = 0;
        for (const auto& bank : words) most = bank.size() > most ? bank.size() : most, all += bank.size();
        found[wavefronts] += most;
        found[ideal_wavefronts] += (all + banks - 1) / banks;
    }
}

void finish(const Group& group) {
    if (group.first() >= shared_begin && group.first() < shared_end) finish_shared(group);
    else finish_global(group);
}

int own_place() { return simt::cluster.block * simt::most_threads + simt::machine.current; }

void note(uintptr_t at, int size, bool write, uintptr_t place) {
    const int thread = simt::machine.current;
    Buffer* buffer = buffer_of(at);
    if (!buffer && !(at >= shared_begin && at < shared_end)) return;
    if (buffer) {
        for (int byte = 0; byte < size && at + byte < buffer->end; ++byte) {
            unsigned char& mark = buffer->touched[at - buffer->begin + byte];
            if (!(mark >> write & 1)) ++found[write ? needed_written : needed_read];
            mark |= 1 << write;
        }
    }
    const uint32_t number = places.emplace(place << 1 | write, uint32_t(places.size())).first->second;
    auto& own = times[own_place()];
    if (own.size() <= number) own.resize(number + 1);
    const uint64_t key = uint64_t(thread / 32) << 58 | uint64_t(number) << 40 | uint64_t(simt::cluster.block) << 36 | own[number]++;
    Group& group = open[key];
    group.size = size;
    group.write = write;
    group.add(thread % 32, at);
    const int width = simt::machine.count - thread / 32 * 32 < 32 ? simt::machine.count % 32 : 32;
    if (group.lanes == width) {
        finish(group);
        open.erase(key);
    }
}

void one(void* address, int size, bool write, void* place) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(address);
    races::touch(at, size, write);
    Pack& pack = packs[own_place()];
    if (pack.left > 0 && at >= pack.begin && at < pack.end) {  // part of what was counted as a whole
        pack.left -= size;
        return;
    }
    note(at, size, write, reinterpret_cast<uintptr_t>(place));
}

}  // namespace

namespace simt {

// The place that they return to is the pack's own.
const void* assume_aligned(const void* pointer, size_t bytes) {
    counted_pack(aligned(pointer, bytes), bytes, false, __builtin_return_address(0));
    return pointer;
}
void* assume_aligned(void* pointer, size_t bytes) {
    counted_pack(aligned(pointer, bytes), bytes, true, __builtin_return_address(0));
    return pointer;
}

void counted_pack(const void* address, size_t bytes, bool write, void* place) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(address);
    packs[own_place()] = {at, at + bytes, int(bytes)};
    note(at, int(bytes), write, reinterpret_cast<uintptr_t>(place));
}

void counted_rows(const void* const* rows, int count, void*) {
    Group group;
    group.size = 16;
    for (int i = 0; i < count; ++i) {
        group.add(i, reinterpret_cast<uintptr_t>(rows[i]));
        races::touch(group.at[i], 16, false);
    }
    finish(group);
}

void counted_copy(void* to, const void* from, int asked, int bytes, void* place) {
    const uintptr_t target = reinterpret_cast<uintptr_t>(to), at = reinterpret_cast<uintptr_t>(place);
    if (asked) note(reinterpret_cast<uintptr_t>(from), asked, false, at);
    note(target, bytes, true, at);
    races::touch(target, bytes, true);
    uint64_t& own = under_way[own_place()];
    own += asked;
    if (own > found[copied]) found[copied] = own;
}

void counted_arrival(void* to, int asked, int bytes) {
    races::touch(reinterpret_cast<uintptr_t>(to), bytes, true);
    under_way[own_place()] -= asked;
}

void ordered_block() { races::block_met(); }
void ordered_warp(int first, unsigned int mask) { races::warp_met(first, mask); }

void counted_launch(const void* shared, size_t bytes) {
    shared_begin = reinterpret_cast<uintptr_t>(shared), shared_end = shared_begin + bytes;
    races::launch(shared_begin, shared_end);
}

void counted_block() {
    for (const auto& entry : open) finish(entry.second);
    open.clear();
    for (auto& own : times) own.clear();
    for (Pack& pack : packs) pack = {};
    for (uint64_t& bytes : under_way) bytes = 0;
    races::block_met();
}

}  // namespace simt

extern "C" {
void count_begin(int number, void** pointers, const unsigned long long* sizes, const int* wide, int cached_bytes) {
    buffers.clear();
    for (int i = 0; i < number; ++i) {
        const uintptr_t begin = reinterpret_cast<uintptr_t>(pointers[i]);
        buffers.push_back({begin, begin + sizes[i], wide[i], std::vector<unsigned char>(sizes[i])});
    }
    cache = {};
    cache.capacity = cached_bytes / sector_bytes;
    places.clear();
    memset(found, 0, sizeof found);
}
void count_end(unsigned long long* into, unsigned long long* of_buffers) {
    for (int i = 0; i < figures; ++i) into[i] = found[i];
    for (size_t i = 0; i < buffers.size(); ++i) of_buffers[i] = buffers[i].fetched;
    buffers.clear();
}
#define HOOK(bytes) \
    void __tsan_read##bytes(void* at) { one(at, bytes, false, __builtin_return_address(0)); } \
    void __tsan_write##bytes(void* at) { one(at, bytes, true, __builtin_return_address(0)); }
HOOK(1) HOOK(2) HOOK(4) HOOK(8) HOOK(16)
#define LOOSE(bytes) \
    void __tsan_unaligned_read##bytes(void* at) { one(at, bytes, false, __builtin_return_address(0)); } \
    void __tsan_unaligned_write##bytes(void* at) { one(at, bytes, true, __builtin_return_address(0)); }
LOOSE(2) LOOSE(4) LOOSE(8) LOOSE(16)
void __tsan_read_range(void* at, unsigned long bytes) { one(at, int(bytes), false, __builtin_return_address(0)); }
void __tsan_write_range(void* at, unsigned long bytes) { one(at, int(bytes), true, __builtin_return_address(0)); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
