template <typename T, int N>
struct __align__(sizeof(T) * N) Pack {
    T at[N];
};

template <int N, typename T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* from) {
    return *static_cast<const Pack<T, N>*>(__builtin_assume_aligned(from, sizeof(T) * N));
}

template <typename T, int N>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, N>& value) {
    *static_cast<Pack<T, N>*>(__builtin_assume_aligned(to, sizeof(T) * N)) = value;
}

extern "C" __global__ void __launch_bounds__(256)
add(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ z) {
    const int block = blockIdx.x;
    const int i0 = (block * 256 + (int)threadIdx.x) * 4;
    const Pack<float, 4> p0 = load_pack<4>(x + i0);
    const float v0_0 = p0.at[0];
    const float v0_1 = p0.at[1];
    const float v0_2 = p0.at[2];
    const float v0_3 = p0.at[3];
    const Pack<float, 4> p1 = load_pack<4>(y + i0);
    const float v1_0 = p1.at[0];
    const float v1_1 = p1.at[1];
    const float v1_2 = p1.at[2];
    const float v1_3 = p1.at[3];
    const float v2_0 = v0_0 + v1_0;
    const float v2_1 = v0_1 + v1_1;
    const float v2_2 = v0_2 + v1_2;
    const float v2_3 = v0_3 + v1_3;
    Pack<float, 4> pack;
    pack.at[0] = v2_0;
    pack.at[1] = v2_1;
    pack.at[2] = v2_2;
    pack.at[3] = v2_3;
    store_pack(z + i0, pack);
}
