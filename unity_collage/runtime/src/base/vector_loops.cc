#include "base/vector_loops.h"

#include <cmath>
#include <iterator>
#include <numeric>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace collage {
namespace {

// Keeps the compiler from removing a loop with a result that is not used.
template <typename T>
void DoNotOptimize(const T& value) {
  asm volatile("" : : "m"(value) : "memory");
}

// Enough dependency chains to hide the latency of a multiply-add on two units. They begin with different
// numbers, since a compiler merges equal chains.
constexpr int kChains = 12;
constexpr int kLanes = 4;

int64_t MultiplyAddPlain(int64_t rounds) {
  float sums[kChains * kLanes];
  std::iota(std::begin(sums), std::end(sums), 1.0F);
  for (int64_t i = 0; i < rounds; ++i) {
    for (float& sum : sums) sum = std::fma(sum, 0.5F, 1.0F);
  }
  DoNotOptimize(sums);
  return rounds * kChains * kLanes * 2;
}

void ReadPlain(const float* data, int64_t nbytes) {
  constexpr int64_t kStep = VectorLoops::kBlock / static_cast<int64_t>(sizeof(float));
  float sums[kStep] = {};
  for (const float* end = data + nbytes / static_cast<int64_t>(sizeof(float)); data < end; data += kStep) {
    for (int64_t i = 0; i < kStep; ++i) sums[i] += data[i];
  }
  DoNotOptimize(sums);
}

void WritePlain(float* data, int64_t nbytes) {
  for (float* end = data + nbytes / static_cast<int64_t>(sizeof(float)); data < end; ++data) *data = 1.0F;
  DoNotOptimize(data);
}

constexpr VectorLoops kPlain = {MultiplyAddPlain, ReadPlain, WritePlain};

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) int64_t MultiplyAdd256(int64_t rounds) {
  __m256 sums[kChains];
  for (int chain = 0; chain < kChains; ++chain) sums[chain] = _mm256_set1_ps(static_cast<float>(chain));
  const __m256 half = _mm256_set1_ps(0.5F), one = _mm256_set1_ps(1.0F);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int chain = 0; chain < kChains; ++chain) sums[chain] = _mm256_fmadd_ps(sums[chain], half, one);
  }
  DoNotOptimize(sums);
  return rounds * kChains * 8 * 2;
}

__attribute__((target("avx2,fma"))) void Read256(const float* data, int64_t nbytes) {
  __m256i seen = _mm256_setzero_si256(), sums[8] = {seen, seen, seen, seen, seen, seen, seen, seen};
  for (const float* end = data + nbytes / 4; data < end; data += 64) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      sums[i] = _mm256_or_si256(sums[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(data) + i));
    }
  }
  for (const __m256i& sum : sums) seen = _mm256_or_si256(seen, sum);
  DoNotOptimize(seen);
}

__attribute__((target("avx2,fma"))) void Write256(float* data, int64_t nbytes) {
  const __m256 one = _mm256_set1_ps(1.0F);
  for (float* end = data + nbytes / 4; data < end; data += 64) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) _mm256_store_ps(data + 8 * i, one);
  }
  DoNotOptimize(data);
}

__attribute__((target("avx512f"))) int64_t MultiplyAdd512(int64_t rounds) {
  __m512 sums[kChains];
  for (int chain = 0; chain < kChains; ++chain) sums[chain] = _mm512_set1_ps(static_cast<float>(chain));
  const __m512 half = _mm512_set1_ps(0.5F), one = _mm512_set1_ps(1.0F);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int chain = 0; chain < kChains; ++chain) sums[chain] = _mm512_fmadd_ps(sums[chain], half, one);
  }
  DoNotOptimize(sums);
  return rounds * kChains * 16 * 2;
}

__attribute__((target("avx512f"))) void Read512(const float* data, int64_t nbytes) {
  __m512i seen = _mm512_setzero_si512(), sums[8] = {seen, seen, seen, seen, seen, seen, seen, seen};
  for (const float* end = data + nbytes / 4; data < end; data += 128) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) sums[i] = _mm512_or_si512(sums[i], _mm512_load_si512(data + 16 * i));
  }
  for (const __m512i& sum : sums) seen = _mm512_or_si512(seen, sum);
  DoNotOptimize(seen);
}

__attribute__((target("avx512f"))) void Write512(float* data, int64_t nbytes) {
  const __m512 one = _mm512_set1_ps(1.0F);
  for (float* end = data + nbytes / 4; data < end; data += 128) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) _mm512_store_ps(data + 16 * i, one);
  }
  DoNotOptimize(data);
}

constexpr VectorLoops k256 = {MultiplyAdd256, Read256, Write256};
constexpr VectorLoops k512 = {MultiplyAdd512, Read512, Write512};
#endif

}  // namespace

const VectorLoops& BestVectorLoops() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return k512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return k256;
#endif
  return kPlain;
}

}  // namespace collage
