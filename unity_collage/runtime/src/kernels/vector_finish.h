// Bias, post-operations and the store of a rectangle of results, one vector of channels deep; see finish.h.
#pragma once

#include "kernels/finish.h"
#include "kernels/vectors.h"

namespace collage::kernels {
namespace {

inline int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// Where the rectangle lies in the result, from its first element, in numbers; `count` channels of it exist.
struct Place {
  int64_t offset, row, pixel;
  int64_t rows, cols, count;
};

// Calls body(pixel, offset) for the pixels that exist, of rows of kCols.
template <int kCols, typename Body>
inline void ForEachPixel(const Place& place, const Body& body) {
  for (int64_t i = 0; i < place.rows; ++i) {
    for (int64_t j = 0; j < place.cols; ++j)
      body(i * kCols + j, place.offset + i * place.row + j * place.pixel);
  }
}

template <int kPixels, int kCols>
inline void Apply(const PostOpCode& post_op, const Place& place, Vector (&pixels)[kPixels]) {
  switch (post_op.kind) {
    case PostOpCode::kClip:
      for (Vector& x : pixels) x = Clip(x, post_op.alpha, post_op.beta);
      break;
    case PostOpCode::kLeaky:
      for (Vector& x : pixels) x = x < Vector{} ? x * post_op.alpha : x;
      break;
    case PostOpCode::kSigmoid:
      for (Vector& x : pixels) x = Sigmoid(x);
      break;
    case PostOpCode::kSwish:
      for (Vector& x : pixels) x *= Sigmoid(x * post_op.alpha);
      break;
    case PostOpCode::kAdd:
      post_op.operand.As([&](const auto* operand) {
        ForEachPixel<kCols>(place, [&](int64_t pixel, int64_t at) {
          pixels[pixel] += LoadSome(operand + at, place.count);
        });
      });
      break;
    case PostOpCode::kMultiply:
      post_op.operand.As([&](const auto* operand) {
        ForEachPixel<kCols>(place, [&](int64_t pixel, int64_t at) {
          pixels[pixel] *= LoadSome(operand + at, place.count);
        });
      });
      break;
  }
}

template <int kPixels, int kCols>
inline void FinishAndStore(const Finish& finish, const Place& place, int64_t channel,
                           Vector (&pixels)[kPixels], const Numbers& result) {
  if (finish.bias != nullptr) {
    const Vector bias = LoadSome(finish.bias + channel, place.count);
    for (Vector& x : pixels) x += bias;
  }
  for (int64_t i = 0; i < finish.num_post_ops; ++i) Apply<kPixels, kCols>(finish.post_ops[i], place, pixels);
  result.As([&](auto* to) {
    ForEachPixel<kCols>(
        place, [&](int64_t pixel, int64_t at) { StoreSome(to + at, pixels[pixel], place.count); });
  });
}

}  // namespace
}  // namespace collage::kernels
