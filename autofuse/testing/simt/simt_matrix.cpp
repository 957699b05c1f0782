// Matrix fragments and asynchronous copies on the host.
//
// A fragment's elements lie in the threads of a warp as "PTX ISA, 9.7.14 Warp-level matrix instructions" has it. Products
// are exact. A sum starts from the addend; the products of eight neighbouring terms (four for tf32) are added to it in
// double, in order, and the sum is rounded to float: once for eight terms, as no unit is documented to do better.
#include "simt_machine.h"

#include <utility>

namespace simt {

// What one lane brings to an instruction of its warp. It lies on the lane's stack, which waits until all are there.
struct Frame {
    const void* row;             // ldmatrix: where the lane's row starts
    uint32_t a[4], b[2];
    float* sum;
    uint32_t* result;
    int kind;
};
float bfloat_value(uint32_t word) { return bits<float>(word << 16); }
uint32_t half_of(const uint32_t* words, int number) {
    return words[number / 2] >> (number % 2 * 16) & 0xffff;
}
float tf32_value(uint32_t word) { return bits<float>(word & 0xffffe000u); }

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

// Lane l gets elements 2 (l mod 4) and the next of row l / 4 of each 8 x 8 matrix; of its transpose for `columns`.
void load_fragments(Frame* const* lanes, bool transposed, void* place) {
    const void* starts[32];
    for (int lane = 0; lane < 32; ++lane) starts[lane] = aligned(lanes[lane]->row, 16);
    for (int first = 0; first < 32; first += 8) counted_rows(starts + first, 8, place);
    for (int lane = 0; lane < 32; ++lane)
        for (int matrix = 0; matrix < 4; ++matrix) {
            uint32_t word = 0;
            for (int half = 0; half < 2; ++half) {
                const int across = 2 * (lane % 4) + half, down = lane / 4;
                const int row = transposed ? across : down, column = transposed ? down : across;
                uint16_t element;
                memcpy(&element, static_cast<const char*>(starts[8 * matrix + row]) + 2 * column, 2);
                word |= uint32_t(element) << (16 * half);
            }
            lanes[lane]->result[matrix] = word;
        }
}

// 16 x 8 sums of `depth` products: 16 of 16-bit floats, 8 of tf32.
void multiply_fragments(Frame* const* lanes, Kind kind) {
    static double a[16][16], b[16][8];
    const int depth = kind == tf32_product ? 8 : 16, round = depth / 2;
    for (int lane = 0; lane < 32; ++lane) {
        const Frame& frame = *lanes[lane];
        const int group = lane / 4, at = lane % 4;
        if (kind == tf32_product) {
            for (int n = 0; n < 4; ++n) a[group + n % 2 * 8][at + n / 2 * 4] = tf32_value(frame.a[n]);
            for (int n = 0; n < 2; ++n) b[at + 4 * n][group] = tf32_value(frame.b[n]);
            continue;
        }
        for (int n = 0; n < 8; ++n) {
            const uint32_t bits = half_of(frame.a, n);
            const float value = kind == half_product ? half_value(uint16_t(bits)) : bfloat_value(bits);
            a[group + n / 2 % 2 * 8][2 * at + n % 2 + n / 4 * 8] = value;
        }
        for (int n = 0; n < 4; ++n) {
            const uint32_t bits = half_of(frame.b, n);
            const float value = kind == half_product ? half_value(uint16_t(bits)) : bfloat_value(bits);
            b[2 * at + n % 2 + n / 2 * 8][group] = value;
        }
    }
    for (int lane = 0; lane < 32; ++lane)
        for (int n = 0; n < 4; ++n) {
            const int row = lane / 4 + n / 2 * 8, column = 2 * (lane % 4) + n % 2;
            float sum = lanes[lane]->sum[n];
            for (int first = 0; first < depth; first += round) {
                double wide = sum;
                for (int k = first; k < first + round; ++k) wide += a[row][k] * b[k][column];
                sum = float(wide);
            }
            lanes[lane]->sum[n] = sum;
        }
}

// All 32 lanes meet; the last to come works for all.
void together(Frame& own, Kind kind, void* place) {
    own.kind = kind;
    meet(reinterpret_cast<uint64_t>(&own), [&](const Fiber* warp) {
        Frame* lanes[32];
        for (int lane = 0; lane < 32; ++lane) {
            lanes[lane] = reinterpret_cast<Frame*>(warp[lane].payload);
            if (lanes[lane]->kind != kind) fail("lanes of a warp are at different matrix instructions");
        }
        if (kind == rows || kind == columns) load_fragments(lanes, kind == columns, place);
        else multiply_fragments(lanes, kind);
    });
}

void load_rows(unsigned int (&to)[4], const void* row, Kind kind) {
    void* const place = __builtin_return_address(0);
    Frame own = {};
    own.row = row, own.result = to;
    together(own, kind, place);
}

void multiply(float (&sum)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1,
                                      Kind kind) {
    Frame own = {};
    memcpy(own.a, a, sizeof own.a);
    own.b[0] = b0, own.b[1] = b1, own.sum = sum;
    together(own, kind, __builtin_return_address(0));
}

// A copy that a thread asked for and has not waited for: its target holds poison until then.
struct Copy {
    unsigned char* to;
    const void* from;
    int asked, bytes;  // what is not asked for of `bytes` becomes zero
};
struct Copies {
    std::vector<Copy> open;                   // not committed yet
    std::vector<std::vector<Copy>> groups;    // committed, oldest first
};
static Copies copies[most_threads];

void forget_copies() {
    for (Copies& own : copies) own.open.clear(), own.groups.clear();
}

void copy_later(void* to, const void* from, int asked, int bytes) {
    if (asked < 0 || asked > bytes) fail("an asynchronous copy of %d bytes asks for %d", bytes, asked);
    if (asked) aligned(from, size_t(bytes));
    unsigned char* const target = static_cast<unsigned char*>(aligned(to, size_t(bytes)));
    counted_copy(target, from, asked, bytes, __builtin_return_address(0));
    memset(target, poison, size_t(bytes));
    copies[machine.current].open.push_back({target, from, asked, bytes});
}

void commit_copies() {
    Copies& own = copies[machine.current];
    own.groups.emplace_back(std::move(own.open));
    own.open.clear();
}

void wait_for_copies(int left) {
    auto& groups = copies[machine.current].groups;
    while (int(groups.size()) > left) {
        for (const Copy& copy : groups.front()) {
            counted_arrival(copy.to, copy.asked, copy.bytes);
            memset(copy.to, 0, size_t(copy.bytes));
            if (copy.asked) memcpy(copy.to, copy.from, size_t(copy.asked));
        }
        groups.erase(groups.begin());
    }
}

}  // namespace simt
