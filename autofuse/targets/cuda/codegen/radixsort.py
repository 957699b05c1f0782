"""A stable radix sort of numbered keys, as CUDA C: for each digit from the lowest, count, add up, and move.

A block has a tile of neighbouring keys, and each of its threads neighbours of the tile. A thread counts its own digits
in a column of shared memory. Counts of all tiles, a digit after the other, are added up; then each key knows its place.
What is where does not depend on what runs when.
"""

from __future__ import annotations

from autofuse.targets.cuda.codegen.scatterplan import DIGITS, SORT_ITEMS, SORT_THREADS

SCAN_THREADS = 1024
COLUMNS = SORT_THREADS + 1
"""Of shared memory: a digit's counts begin in another bank than those of the next one."""
SHARED_BYTES = 4 * DIGITS * COLUMNS
SCAN_BYTES = 4 * SCAN_THREADS

NAMES = ("digit_of", "count_digits", "count_tile", "add_up", "move_tile")

FUNCTIONS = f"""\
__device__ __forceinline__ unsigned int digit_of(unsigned int key, int shift) {{ return key >> shift & {DIGITS - 1}; }}

// Digits of the tile's keys: those of thread t in column t.
__device__ __forceinline__ void count_digits(const unsigned int* keys, int count, int shift, unsigned int* counted) {{
    const int first = ((int)blockIdx.x * {SORT_THREADS} + (int)threadIdx.x) * {SORT_ITEMS};
    for (int digit = 0; digit < {DIGITS}; ++digit) counted[digit * {COLUMNS} + threadIdx.x] = 0;
    for (int i = first; i < first + {SORT_ITEMS} && i < count; ++i)
        counted[digit_of(keys[i], shift) * {COLUMNS} + threadIdx.x] += 1;
    __syncthreads();
}}

__device__ __forceinline__ void count_tile(
    const unsigned int* keys, int count, int shift, unsigned int* counts, unsigned int* counted) {{
    count_digits(keys, count, shift, counted);
    if (threadIdx.x >= {DIGITS}) return;
    unsigned int sum = 0;
    for (int t = 0; t < {SORT_THREADS}; ++t) sum += counted[threadIdx.x * {COLUMNS} + t];
    counts[threadIdx.x * gridDim.x + blockIdx.x] = sum;
}}

// Each count becomes the sum of those before it. One block.
__device__ __forceinline__ void add_up(unsigned int* counts, int count, unsigned int* sums) {{
    const int own = (count + {SCAN_THREADS - 1}) / {SCAN_THREADS}, first = (int)threadIdx.x * own;
    unsigned int sum = 0;
    for (int i = first; i < first + own && i < count; ++i) sum += counts[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 1; step < {SCAN_THREADS}; step *= 2) {{
        const unsigned int before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }}
    unsigned int running = sums[threadIdx.x] - sum;
    for (int i = first; i < first + own && i < count; ++i) {{
        const unsigned int here = counts[i];
        counts[i] = running;
        running += here;
    }}
}}

__device__ __forceinline__ void move_tile(
    const unsigned int* keys, const unsigned int* order, unsigned int* keys_to, unsigned int* order_to,
    int count, int shift, const unsigned int* counts, unsigned int* counted) {{
    count_digits(keys, count, shift, counted);
    if (threadIdx.x < {DIGITS}) {{
        unsigned int running = counts[threadIdx.x * gridDim.x + blockIdx.x];
        for (int t = 0; t < {SORT_THREADS}; ++t) {{
            const unsigned int here = counted[threadIdx.x * {COLUMNS} + t];
            counted[threadIdx.x * {COLUMNS} + t] = running;
            running += here;
        }}
    }}
    __syncthreads();
    const int first = ((int)blockIdx.x * {SORT_THREADS} + (int)threadIdx.x) * {SORT_ITEMS};
    for (int i = first; i < first + {SORT_ITEMS} && i < count; ++i) {{
        const unsigned int to = counted[digit_of(keys[i], shift) * {COLUMNS} + threadIdx.x]++;
        keys_to[to] = keys[i];
        order_to[to] = order[i];
    }}
}}

"""
"""What the functions of a sort call."""
