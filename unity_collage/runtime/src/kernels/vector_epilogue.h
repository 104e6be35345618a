// The epilogue for a rectangle of results, one vector of channels deep; see epilogue.h.
#pragma once

#include "kernels/epilogue.h"
#include "kernels/vectors.h"

namespace collage::kernels {
namespace {

inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

// The rectangle in the result, in elements: its offset and the distances of rows and pixels. Of the kernel's
// rectangle and vector only `rows` rows, `cols` columns and `count` channels lie in the result.
struct ResultRegion {
  int64_t offset, row, pixel;
  int64_t rows, cols, count;
};

// Calls body(pixel, offset) for the pixels that lie in the result; the kernel's rows have kCols pixels.
template <int kCols, typename Body>
inline void ForEachPixel(const ResultRegion& region, const Body& body) {
  for (int64_t i = 0; i < region.rows; ++i) {
    for (int64_t j = 0; j < region.cols; ++j)
      body(i * kCols + j, region.offset + i * region.row + j * region.pixel);
  }
}

template <int kPixels, int kCols>
inline void ApplyPostOp(const PostOpCode& post_op, const ResultRegion& region, Vector (&pixels)[kPixels]) {
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
        ForEachPixel<kCols>(region, [&](int64_t pixel, int64_t at) {
          pixels[pixel] += LoadPartial(operand + at, region.count);
        });
      });
      break;
    case PostOpCode::kMultiply:
      post_op.operand.As([&](const auto* operand) {
        ForEachPixel<kCols>(region, [&](int64_t pixel, int64_t at) {
          pixels[pixel] *= LoadPartial(operand + at, region.count);
        });
      });
      break;
  }
}

template <int kPixels, int kCols>
inline void StoreWithEpilogue(const Epilogue& epilogue, const ResultRegion& region, int64_t channel,
                              Vector (&pixels)[kPixels], const Elements& result) {
  if (epilogue.bias != nullptr) {
    const Vector bias = LoadPartial(epilogue.bias + channel, region.count);
    for (Vector& x : pixels) x += bias;
  }
  for (int64_t i = 0; i < epilogue.num_post_ops; ++i)
    ApplyPostOp<kPixels, kCols>(epilogue.post_ops[i], region, pixels);
  result.As([&](auto* to) {
    ForEachPixel<kCols>(
        region, [&](int64_t pixel, int64_t at) { StorePartial(to + at, pixels[pixel], region.count); });
  });
}

}  // namespace
}  // namespace collage::kernels
