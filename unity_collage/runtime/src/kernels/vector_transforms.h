// The transforms of Winograd's algorithms with the vectors of the including file; see winograd.h.
#pragma once

#include "kernels/vectors.h"

namespace collage::kernels {
namespace {

// The transforms along one axis (Lavin and Gray 2015): Source multiplies a row or column of a patch by B^T,
// Result one of the products by A^T, with common terms computed once. F(m, r) computes m results of r taps.
// It interpolates at infinity and at the first m + r - 2 of the points 0, 1, -1, 2 and -2.
template <int kTile, int kTaps, int kStride>
struct Transform;

template <>
struct Transform<2, 3, 1> {
  static inline void Source(const Vector (&d)[4], Vector (&t)[4]) {
    t[0] = d[0] - d[2];
    t[1] = d[1] + d[2];
    t[2] = d[2] - d[1];
    t[3] = d[1] - d[3];
  }
  static inline void Result(const Vector (&m)[4], Vector (&y)[2]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] - m[3];
  }
};

template <>
struct Transform<4, 3, 1> {
  static inline void Source(const Vector (&d)[6], Vector (&t)[6]) {
    const Vector a = d[4] - 4.0F * d[2], b = d[3] - 4.0F * d[1];
    const Vector c = d[4] - d[2], e = 2.0F * (d[3] - d[1]);
    t[0] = 4.0F * d[0] - 5.0F * d[2] + d[4];
    t[1] = a + b;
    t[2] = a - b;
    t[3] = c + e;
    t[4] = c - e;
    t[5] = 4.0F * d[1] - 5.0F * d[3] + d[5];
  }
  static inline void Result(const Vector (&m)[6], Vector (&y)[4]) {
    const Vector a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], e = m[3] - m[4];
    y[0] = m[0] + a + c;
    y[1] = b + 2.0F * e;
    y[2] = a + 4.0F * c;
    y[3] = b + 8.0F * e + m[5];
  }
};

template <>
struct Transform<2, 2, 1> {
  static inline void Source(const Vector (&d)[3], Vector (&t)[3]) {
    t[0] = d[0] - d[1];
    t[1] = d[1];
    t[2] = d[2] - d[1];
  }
  static inline void Result(const Vector (&m)[3], Vector (&y)[2]) {
    y[0] = m[0] + m[1];
    y[1] = m[1] + m[2];
  }
};

template <>
struct Transform<4, 2, 1> {
  static inline void Source(const Vector (&d)[5], Vector (&t)[5]) {
    const Vector a = d[3] - d[2], b = 2.0F * d[1], c = d[3] - d[1];
    t[0] = 2.0F * (d[0] - d[2]) + c;
    t[1] = a - b;
    t[2] = a + b - 2.0F * d[2];
    t[3] = c;
    t[4] = d[4] - d[2] - 2.0F * c;
  }
  static inline void Result(const Vector (&m)[5], Vector (&y)[4]) {
    const Vector a = m[1] + m[2], b = m[1] - m[2];
    y[0] = m[0] + a + m[3];
    y[1] = b + 2.0F * m[3];
    y[2] = a + 4.0F * m[3];
    y[3] = b + 8.0F * m[3] + m[4];
  }
};

// A stride of 2: elements of even index are multiplied by the outer taps, as F(kTile, 2). Elements of odd
// index are multiplied by the middle tap, and these products are added to the results.
template <int kTile>
struct Transform<kTile, 3, 2> {
  using Even = Transform<kTile, 2, 1>;

  static inline void Source(const Vector (&d)[2 * kTile + 1], Vector (&t)[2 * kTile + 1]) {
    Vector even[kTile + 1], points[kTile + 1];
    for (int i = 0; i <= kTile; ++i) even[i] = d[2 * i];
    Even::Source(even, points);
    for (int i = 0; i <= kTile; ++i) t[i] = points[i];
    for (int i = 0; i < kTile; ++i) t[kTile + 1 + i] = d[2 * i + 1];
  }
  static inline void Result(const Vector (&m)[2 * kTile + 1], Vector (&y)[kTile]) {
    Vector points[kTile + 1];
    for (int i = 0; i <= kTile; ++i) points[i] = m[i];
    Even::Result(points, y);
    for (int i = 0; i < kTile; ++i) y[i] += m[kTile + 1 + i];
  }
};

// The order in which the points of a patch are multiplied: points with the same filter follow each other.
template <int kEdge, int kAxisFilters>
struct PointOrder {
  int point[kEdge * kEdge] = {}, filter[kEdge * kEdge] = {};

  constexpr PointOrder() {
    int at = 0;
    for (int f = 0; f < kAxisFilters * kAxisFilters; ++f) {
      for (int p = 0; p < kEdge * kEdge; ++p) {
        if (AxisFilter(p / kEdge) != f / kAxisFilters || AxisFilter(p % kEdge) != f % kAxisFilters) continue;
        point[at] = p;
        filter[at++] = f;
      }
    }
  }
  static constexpr int AxisFilter(int place) { return place < kAxisFilters ? place : kAxisFilters - 1; }
};

}  // namespace
}  // namespace collage::kernels
