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
    #pragma unroll 1
    for (int chunk = 0; chunk < 16; chunk += 4) {
        const int k0_0 = (chunk * 64 + rank) * 4;
        const int k0_1 = ((chunk + 1) * 64 + rank) * 4;
        const int k0_2 = ((chunk + 2) * 64 + rank) * 4;
        const int k0_3 = ((chunk + 3) * 64 + rank) * 4;
        const Pack<float, 4> p0_0 = load_pack<4>(x + 4096 * i0 + k0_0);
        const float v0_0 = p0_0.at[0];
        const float v0_1 = p0_0.at[1];
        const float v0_2 = p0_0.at[2];
        const float v0_3 = p0_0.at[3];
        const Pack<float, 4> p0_4 = load_pack<4>(x + 4096 * i0 + k0_1);
        const float v0_4 = p0_4.at[0];
        const float v0_5 = p0_4.at[1];
        const float v0_6 = p0_4.at[2];
        const float v0_7 = p0_4.at[3];
        const Pack<float, 4> p0_8 = load_pack<4>(x + 4096 * i0 + k0_2);
        const float v0_8 = p0_8.at[0];
        const float v0_9 = p0_8.at[1];
        const float v0_10 = p0_8.at[2];
        const float v0_11 = p0_8.at[3];
        const Pack<float, 4> p0_12 = load_pack<4>(x + 4096 * i0 + k0_3);
        const float v0_12 = p0_12.at[0];
        const float v0_13 = p0_12.at[1];
        const float v0_14 = p0_12.at[2];
        const float v0_15 = p0_12.at[3];
        r1 = r1 + ((((v0_0 + v0_1) + (v0_2 + v0_3)) + ((v0_4 + v0_5) + (v0_6 + v0_7))) + (((v0_8 + v0_9) + (v0_10 + v0_11)) + ((v0_12 + v0_13) + (v0_14 + v0_15))));
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
