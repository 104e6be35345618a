// Vectors of floats, as wide as those of the instruction set that the including file is compiled for.
//
// Everything here and in the other vector_*.h has internal linkage and calls nothing of the standard library.
// So the linker cannot replace a function that is compiled for one instruction set by the same function for
// another.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <initializer_list>

#include "kernels/elements.h"

namespace collage::kernels {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));
using Bits = int32_t __attribute__((vector_size(kLanes * sizeof(float))));
// A vector at any address of a float.
using UnalignedVector =
    float __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

using Halves = uint16_t __attribute__((vector_size(kLanes * sizeof(uint16_t))));
using UnalignedHalves =
    uint16_t __attribute__((vector_size(kLanes * sizeof(uint16_t)), aligned(sizeof(uint16_t)), may_alias));

inline Vector Load(const float* from) { return *reinterpret_cast<const UnalignedVector*>(from); }
inline void Store(float* to, Vector value) { *reinterpret_cast<UnalignedVector*>(to) = value; }
inline Vector Broadcast(float value) { return value - Vector{}; }

inline Vector ToFloat32(Halves halves) {
  return reinterpret_cast<Vector>(__builtin_convertvector(halves, Bits) << 16);
}

// Rounds to the nearest bfloat16, ties to even. NaN stays NaN.
inline Halves ToBfloat16(Vector value) {
  const Bits bits = reinterpret_cast<Bits>(value), last = (bits >> 16) & 1;
  const Bits rounded = value == value ? bits + 0x7FFF + last : bits | 0x400000;
  return __builtin_convertvector(rounded >> 16, Halves);
}

inline Vector Load(const Bfloat16* from) {
  return ToFloat32(*reinterpret_cast<const UnalignedHalves*>(from));
}
inline void Store(Bfloat16* to, Vector value) { *reinterpret_cast<UnalignedHalves*>(to) = ToBfloat16(value); }

// One element in every lane.
inline Vector LoadBroadcast(const float* from) { return Broadcast(*from); }
inline Vector LoadBroadcast(const Bfloat16* from) {
  return reinterpret_cast<Vector>(Bits{} + (static_cast<int32_t>(from->bits) << 16));
}

// Loads `count` elements; the other lanes are zero. All of a vector if `count` is larger.
inline Vector LoadPartial(const float* from, int64_t count) {
  if (count >= kLanes) return Load(from);
#if defined(__AVX512F__)
  return reinterpret_cast<Vector>(_mm512_maskz_loadu_ps((1U << count) - 1, from));
#else
  Vector value{};
  for (int64_t i = 0; i < count; ++i) value[i] = from[i];
  return value;
#endif
}

inline Vector LoadPartial(const Bfloat16* from, int64_t count) {
  if (count >= kLanes) return Load(from);
  Halves halves{};
#if defined(__AVX512BW__)
  halves = reinterpret_cast<Halves>(_mm256_maskz_loadu_epi16((1U << count) - 1, from));
#else
  for (int64_t i = 0; i < count; ++i) halves[i] = from[i].bits;
#endif
  return ToFloat32(halves);
}

inline void StorePartial(Bfloat16* to, Vector value, int64_t count) {
  if (count >= kLanes) return Store(to, value);
  const Halves halves = ToBfloat16(value);
#if defined(__AVX512BW__)
  _mm256_mask_storeu_epi16(to, (1U << count) - 1, reinterpret_cast<__m256i>(halves));
#else
  for (int64_t i = 0; i < count; ++i) to[i].bits = halves[i];
#endif
}

inline void StorePartial(float* to, Vector value, int64_t count) {
  if (count >= kLanes) return Store(to, value);
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(to, (1U << count) - 1, reinterpret_cast<__m512>(value));
#else
  for (int64_t i = 0; i < count; ++i) to[i] = value[i];
#endif
}

// NaN stays NaN: these instructions return their second operand if one is NaN. A compiler makes two
// instructions of each comparison, hence the intrinsics.
inline Vector Clip(Vector x, float low, float high) {
#if defined(__AVX512F__)
  // The forms without a mask use an undefined vector, about which GCC 12 warns.
  const __m512 raised = _mm512_maskz_max_ps(0xFFFF, _mm512_set1_ps(low), x);
  return reinterpret_cast<Vector>(_mm512_maskz_min_ps(0xFFFF, _mm512_set1_ps(high), raised));
#elif defined(__AVX2__)
  return reinterpret_cast<Vector>(_mm256_min_ps(_mm256_set1_ps(high), _mm256_max_ps(_mm256_set1_ps(low), x)));
#else
  const Vector raised = x < Broadcast(low) ? Broadcast(low) : x;
  return raised > Broadcast(high) ? Broadcast(high) : raised;
#endif
}

// e^x for x from -87 to 88: 2^n e^r with n = round(x / ln 2). |r| <= ln 2 / 2 gets a Taylor polynomial. NaN
// stays NaN: n is not added to the bits of e^r, since the sum of the bits of NaN and others may be a number.
inline Vector ExpInside(Vector x) {
  // Adding it rounds to an integer. The last bits are then those of n + 127, the exponent of 2^n.
  constexpr float kRounder = 12582912.0F + 127;
  const Vector shifted = x * 1.44269504F + kRounder, n = shifted - kRounder;
  const Vector rest = x - n * 0.693359375F + n * 2.12194440e-4F;
  Vector sum = Broadcast(1.0F / 5040);
  for (const float term : {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F})
    sum = sum * rest + term;
  return sum * reinterpret_cast<Vector>(reinterpret_cast<Bits>(shifted) << 23);
}

inline Vector Exp(Vector x) { return ExpInside(Clip(x, -87.0F, 88.0F)); }

// Exactly zero where it is too small for a float: a swish multiplies it by x, which may be as large as any
// float.
inline Vector Sigmoid(Vector x) {
  const Vector value = 1.0F / (1.0F + Exp(-x));
  return x < Broadcast(-87.0F) ? Vector{} : value;
}

}  // namespace
}  // namespace collage::kernels
