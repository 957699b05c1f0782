// CartPole by hand, with the random bits of threefry2x32 as jax.random has them. Three schemes: one environment after the
// other; vectors of environments whose new states are drawn where any lane of a vector is done; and blocks of vectors,
// of which those that are done are collected. The chain of keys is the same for all environments: it is computed first,
// into a table. Vectors also with numbers that are given.
#include <omp.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr float kForce = 10.0f, kGravity = 9.8f, kPole = 0.1f, kHalf = 0.5f, kTotal = 1.1f, kTau = 0.02f;
constexpr float kFar = 2.4f, kTilted = 0.20943951f, kStart = 0.05f;

#ifndef LANES
#define LANES 16
#endif
typedef float vf __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint8_t vb __attribute__((vector_size(LANES)));

template <class U>
inline U rotated(U x, int by) {
  return (x << by) | (x >> (32 - by));
}

template <class U>
inline void threefry(uint32_t k0, uint32_t k1, U& x0, U& x1) {
  static const int kTurns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t ks[3] = {k0, k1, k0 ^ k1 ^ 0x1BD11BDAu};
  x0 += ks[0];
  x1 += ks[1];
#pragma GCC unroll 5
  for (int round = 0; round < 5; ++round) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      x0 += x1;
      x1 = rotated(x1, kTurns[round % 2][i]) ^ x0;
    }
    x0 += ks[(round + 1) % 3];
    x1 += ks[(round + 2) % 3] + static_cast<uint32_t>(round + 1);
  }
}

struct Keys {
  uint32_t act[2], fresh[2];
};

std::vector<Keys> chain(const uint32_t* key, int64_t steps) {
  std::vector<Keys> found(steps);
  uint32_t k0 = key[0], k1 = key[1];
  for (int64_t t = 0; t < steps; ++t) {
    uint32_t words[3][2];
    for (uint32_t child = 0; child < 3; ++child) {
      words[child][0] = 0;
      words[child][1] = child;
      threefry(k0, k1, words[child][0], words[child][1]);
    }
    std::memcpy(found[t].act, words[1], 8);
    std::memcpy(found[t].fresh, words[2], 8);
    k0 = words[0][0];
    k1 = words[0][1];
  }
  return found;
}

inline float unit(uint32_t bits) {
  uint32_t word = (bits >> 9) | 0x3F800000u;
  float value;
  std::memcpy(&value, &word, 4);
  return value - 1.0f;
}

inline float placed(float u) { return std::fmax(-kStart, u * (kStart - -kStart) + -kStart); }

inline vf unit(vu bits) { return (vf)((bits >> 9) | 0x3F800000u) - 1.0f; }

inline vf placed(vf u) {
  vf made = u * (kStart - -kStart) + -kStart;
  vf low = vf{} - kStart;
  return made > low ? made : low;
}

// Sine and cosine between -pi/4 and pi/4 to the last bit or two: angles never leave a quarter of that here.
inline vf sine(vf x) {
  vf z = x * x;
  return x + x * z * (-1.6666654611e-1f + z * (8.3321608736e-3f + z * -1.9515295891e-4f));
}

inline vf cosine(vf x) {
  vf z = x * x;
  return 1.0f - 0.5f * z + z * z * (4.166664568298827e-2f + z * (-1.388731625493765e-3f + z * 2.443315711809948e-5f));
}

inline bool any(vi mask) {
  int64_t words[LANES / 2], total = 0;
  std::memcpy(words, &mask, sizeof mask);
  for (int i = 0; i < LANES / 2; ++i) total |= words[i];
  return total != 0;
}

// Numbers of a step for a vector of environments: drawn,
struct Drawn {
  const std::vector<Keys> keys;

  vi right(int64_t t, vu lane) const {
    vu a = {}, b = lane;
    threefry(keys[t].act[0], keys[t].act[1], a, b);
    return unit(a ^ b) < 0.5f;
  }
  vf fresh(int64_t t, vu lane, uint32_t i) const {
    vu a = {}, b = lane * 4 + i;
    threefry(keys[t].fresh[0], keys[t].fresh[1], a, b);
    return placed(unit(a ^ b));
  }
};

// or given for all steps, `right[T][N]` and `fresh[T][N][4]`.
struct Given {
  const uint8_t* rights;
  const float* states;
  int64_t count;

  vi right(int64_t t, vu lane) const {
    const uint8_t* row = rights + t * count;
    vb found;
    if (lane[LANES - 1] - lane[0] == LANES - 1) {
      std::memcpy(&found, row + lane[0], LANES);
    } else {  // the last vector repeats the last environment
      for (int i = 0; i < LANES; ++i) found[i] = row[lane[i]];
    }
    return __builtin_convertvector(found, vi) != 0;
  }
  vf fresh(int64_t t, vu lane, uint32_t i) const {
    vf found;
    for (int k = 0; k < LANES; ++k) found[k] = states[4 * (t * count + lane[k]) + i];
    return found;
  }
};

// A step of a vector of environments, and which of them are done.
inline vi moved(vi right, vf part[4], vf& sum) {
  const vf low = vf{} - kForce, high = vf{} + kForce, one = vf{} + 1.0f;
  const vf force = right ? high : low;
  const vf s = sine(part[2]), c = cosine(part[2]);
  const vf thrust = (force + kPole * kHalf * part[3] * part[3] * s) / kTotal;
  const vf turn = (kGravity * s - c * thrust) / (kHalf * (4.0f / 3.0f - kPole * c * c / kTotal));
  const vf push = thrust - kPole * kHalf * turn * c / kTotal;
  part[0] += kTau * part[1];
  part[1] += kTau * push;
  part[2] += kTau * part[3];
  part[3] += kTau * turn;
  const vi done = (part[0] > kFar) | (part[0] < -kFar) | (part[2] > kTilted) | (part[2] < -kTilted);
  sum += done ? vf{} : one;
  return done;
}

template <class Numbers>
void simulate(const Numbers& numbers, float* state, float* reward, int64_t count, int64_t steps) {
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < count; first += LANES) {
    vf part[4], sum = {};
    vu lane;
    for (int i = 0; i < LANES; ++i) {
      const int64_t n = first + i < count ? first + i : count - 1;
      lane[i] = static_cast<uint32_t>(n);
      for (int k = 0; k < 4; ++k) part[k][i] = state[4 * n + k];
    }
    for (int64_t t = 0; t < steps; ++t) {
      const vi done = moved(numbers.right(t, lane), part, sum);
      if (any(done)) {
        for (uint32_t i = 0; i < 4; ++i) part[i] = done ? numbers.fresh(t, lane, i) : part[i];
      }
    }
    for (int i = 0; i < LANES && first + i < count; ++i) {
      for (int k = 0; k < 4; ++k) state[4 * (first + i) + k] = part[k][i];
      reward[first + i] = sum[i];
    }
  }
}

// The same for blocks of vectors whose state the first cache holds: environments that are done are collected over a
// block, and their new states drawn for a vector of them at a time.
template <class Numbers>
void simulate_packed(const Numbers& numbers, float* state, float* reward, int64_t count, int64_t steps) {
  constexpr int kMost = 32;
  const int64_t vectors = (count + LANES - 1) / LANES, threads = omp_get_max_threads();
  const int64_t wanted = (vectors + threads - 1) / threads, block = wanted < kMost ? wanted : kMost;
#pragma omp parallel for schedule(static)
  for (int64_t begin = 0; begin < vectors; begin += block) {
    const int64_t size = begin + block < vectors ? block : vectors - begin;
    vf part[kMost][4], sum[kMost];
    vu lane[kMost];
    uint32_t places[kMost * LANES];
    for (int64_t v = 0; v < size; ++v) {
      sum[v] = vf{};
      for (int i = 0; i < LANES; ++i) {
        const int64_t own = (begin + v) * LANES + i, n = own < count ? own : count - 1;
        lane[v][i] = static_cast<uint32_t>(n);
        for (int k = 0; k < 4; ++k) part[v][k][i] = state[4 * n + k];
      }
    }
    for (int64_t t = 0; t < steps; ++t) {
      int64_t found = 0;
      for (int64_t v = 0; v < size; ++v) {
        const vi done = moved(numbers.right(t, lane[v]), part[v], sum[v]);
        if (!any(done)) continue;
        for (int i = 0; i < LANES; ++i) {
          places[found] = static_cast<uint32_t>(v * LANES + i);
          found += done[i] & 1;
        }
      }
      for (int64_t first = 0; first < found; first += LANES) {
        const int here = static_cast<int>(found - first < LANES ? found - first : LANES);
        vu chosen;
        for (int i = 0; i < LANES; ++i) {
          const uint32_t place = places[i < here ? first + i : first];
          chosen[i] = lane[place / LANES][place % LANES];
        }
        for (uint32_t k = 0; k < 4; ++k) {
          const vf fresh = numbers.fresh(t, chosen, k);
          for (int i = 0; i < here; ++i) {
            const uint32_t place = places[first + i];
            part[place / LANES][k][place % LANES] = fresh[i];
          }
        }
      }
    }
    for (int64_t v = 0; v < size; ++v) {
      for (int i = 0; i < LANES && (begin + v) * LANES + i < count; ++i) {
        const int64_t n = (begin + v) * LANES + i;
        for (int k = 0; k < 4; ++k) state[4 * n + k] = part[v][k][i];
        reward[n] = sum[v][i];
      }
    }
  }
}

}  // namespace

extern "C" void simple(const uint32_t* key, float* state, float* reward, int64_t count, int64_t steps) {
  const std::vector<Keys> keys = chain(key, steps);
#pragma omp parallel for schedule(static)
  for (int64_t n = 0; n < count; ++n) {
    float x = state[4 * n], v = state[4 * n + 1], angle = state[4 * n + 2], spin = state[4 * n + 3], sum = 0.0f;
    for (int64_t t = 0; t < steps; ++t) {
      uint32_t a = 0, b = static_cast<uint32_t>(n);
      threefry(keys[t].act[0], keys[t].act[1], a, b);
      const float force = unit(a ^ b) < 0.5f ? kForce : -kForce;
      const float s = std::sin(angle), c = std::cos(angle);
      const float thrust = (force + kPole * kHalf * spin * spin * s) / kTotal;
      const float turn = (kGravity * s - c * thrust) / (kHalf * (4.0f / 3.0f - kPole * c * c / kTotal));
      const float push = thrust - kPole * kHalf * turn * c / kTotal;
      x += kTau * v;
      v += kTau * push;
      angle += kTau * spin;
      spin += kTau * turn;
      if (std::fabs(x) > kFar || std::fabs(angle) > kTilted) {
        float* parts[4] = {&x, &v, &angle, &spin};
        for (uint32_t i = 0; i < 4; ++i) {
          uint32_t p = 0, q = static_cast<uint32_t>(4 * n + i);
          threefry(keys[t].fresh[0], keys[t].fresh[1], p, q);
          *parts[i] = placed(unit(p ^ q));
        }
      } else {
        sum += 1.0f;
      }
    }
    state[4 * n] = x, state[4 * n + 1] = v, state[4 * n + 2] = angle, state[4 * n + 3] = spin;
    reward[n] = sum;
  }
}

extern "C" void vectors(const uint32_t* key, float* state, float* reward, int64_t count, int64_t steps) {
  simulate(Drawn{chain(key, steps)}, state, reward, count, steps);
}

extern "C" void vectors_packed(const uint32_t* key, float* state, float* reward, int64_t count, int64_t steps) {
  simulate_packed(Drawn{chain(key, steps)}, state, reward, count, steps);
}

extern "C" void vectors_given(const uint8_t* right, const float* fresh, float* state, float* reward, int64_t count,
                              int64_t steps) {
  simulate(Given{right, fresh, count}, state, reward, count, steps);
}
