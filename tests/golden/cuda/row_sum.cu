template <typename T, int N>
struct __align__(sizeof(T) * N) Pack {
    T at[N];
};

template <int N, typename T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* from) {
    return *static_cast<const Pack<T, N>*>(__builtin_assume_aligned(from, sizeof(T) * N));
}

extern "C" __global__ void __launch_bounds__(128)
row_sum(const float* __restrict__ x, float* __restrict__ y) {
    extern __shared__ __align__(16) unsigned char shared_memory[];
    const int block = blockIdx.x;
    const int rank = threadIdx.x % 64, slot = threadIdx.x / 64;
    const int point = block * 2 + slot;
    const int i0 = point;
    float r1 = -0.0f;
    #pragma unroll 4
    for (int chunk = 0; chunk < 16; ++chunk) {
        const int k0 = (chunk * 64 + rank) * 4;
        const Pack<float, 4> p0 = load_pack<4>(x + 4096 * i0 + k0);
        const float v0_0 = p0.at[0];
        const float v0_1 = p0.at[1];
        const float v0_2 = p0.at[2];
        const float v0_3 = p0.at[3];
        r1 = r1 + ((v0_0 + v0_1) + (v0_2 + v0_3));
    }
    #pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, r1, apart);
        r1 = r1 + other;
    }
    float* const partial_r1 = reinterpret_cast<float*>(shared_memory + 0);
    if (rank % 32 == 0) partial_r1[threadIdx.x / 32] = r1;
    __syncthreads();
    r1 = partial_r1[slot * 2 + 0];
    #pragma unroll
    for (int part = 1; part < 2; ++part) {
        r1 = r1 + partial_r1[slot * 2 + part];
    }
    if (rank == 0) y[i0] = r1;
}
