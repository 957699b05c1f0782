// Clusters: the blocks of one take turns. One runs until all of its threads wait for the others, or have ended.
//
// A block's shared memory is put aside while another one runs, and lies at the same addresses in all of them.
#include "simt_machine.h"

namespace simt {

void resume_block(int number) {
    if (number == cluster.block) return;
    Aside& gone = cluster.aside[cluster.block];
    gone.current = machine.current, gone.alive = machine.alive, gone.waiting = machine.waiting;
    gone.shared.assign(cluster.shared, cluster.shared + cluster.bytes);
    const Aside& back = cluster.aside[number];
    machine.current = back.current, machine.alive = back.alive, machine.waiting = back.waiting;
    if (cluster.bytes) memcpy(cluster.shared, back.shared.data(), cluster.bytes);
    blockIdx = back.index;
    machine.fibers = all_fibers + number * most_threads;
    cluster.block = number;
    ordered_block();
}

bool any_thread(const Fiber* fibers, State state) {
    for (int i = 0; i < machine.count; ++i)
        if (fibers[i].state == state) return true;
    return false;
}

bool next_block() {
    if (cluster.blocks == 1) return false;
    bool met = true;
    for (int i = 1; i <= cluster.blocks; ++i) {
        const int number = (cluster.block + i) % cluster.blocks;
        const Fiber* fibers = all_fibers + number * most_threads;
        if (any_thread(fibers, State::ready)) return resume_block(number), true;
        for (int t = 0; t < machine.count; ++t) met = met && fibers[t].state == State::at_cluster;
    }
    if (!met) return false;
    for (int number = 0; number < cluster.blocks; ++number)
        for (int t = 0; t < machine.count; ++t) all_fibers[number * most_threads + t].state = State::ready;
    resume_block((cluster.block + 1) % cluster.blocks);
    return true;
}

bool all_ended() {
    bool ended = machine.alive == 0;
    for (int number = 0; number < cluster.blocks; ++number)
        if (number != cluster.block) ended = ended && cluster.aside[number].alive == 0;
    return ended;
}

// Waits for the threads of all blocks of the cluster.
void wait_for_cluster() {
    if (cluster.blocks == 1) fail("waits for a cluster, and the launch has none");
    machine.fibers[machine.current].state = State::at_cluster;
    yield();
}

unsigned int number_in_cluster() { return unsigned(cluster.block); }

// Where a block of the cluster has what lies at `at` here.
void* in_cluster(const void* at, unsigned int number) {
    const size_t offset = static_cast<const unsigned char*>(at) - cluster.shared;
    if (number >= unsigned(cluster.blocks)) fail("asks for block %u of a cluster of %d", number, cluster.blocks);
    if (offset >= cluster.bytes) fail("asks for what is not in shared memory in another block");
    if (int(number) == cluster.block) return cluster.shared + offset;
    const Fiber* fibers = all_fibers + number * most_threads;
    bool ended = true;
    for (int i = 0; i < machine.count; ++i) ended = ended && fibers[i].state == State::done;
    if (ended) fail("reaches into the shared memory of block %u of the cluster, which has ended", number);
    return cluster.aside[number].shared.data() + offset;
}

void begin_launch(int clustered, unsigned char* shared, size_t bytes) {
    cluster.blocks = clustered, cluster.block = 0, cluster.shared = shared, cluster.bytes = clustered > 1 ? bytes : 0;
}

const unsigned char* shared_of(int number) {
    return number == cluster.block ? cluster.shared : cluster.aside[number].shared.data();
}

// A block's shared memory, poisoned, and its threads, which have not begun.
void begin_block(int number, uint3 index) {
    if (number == 0) cluster.block = 0;
    Aside& block = cluster.aside[number];
    block.current = machine.step > 0 ? 0 : machine.count - 1;
    block.alive = machine.count, block.waiting = 0, block.index = index;
    block.shared.assign(cluster.bytes, poison);
}

}  // namespace simt
