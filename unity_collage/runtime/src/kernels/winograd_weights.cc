#include "kernels/winograd_weights.h"

#include <vector>

#include "base/pool.h"

namespace collage::kernels {
namespace {

// G of the algorithms: U = G g G^T.
using Matrix = std::vector<std::vector<double>>;

Matrix OfTwoTaps(int tile) {
  if (tile == 2) return {{1, 0}, {1, 1}, {0, 1}};
  return {{1. / 2, 0}, {-1. / 2, -1. / 2}, {-1. / 6, 1. / 6}, {1. / 6, 1. / 3}, {0, 1}};
}

Matrix OfThreeTaps(int tile) {
  if (tile == 2) return {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
  return {{1. / 4, 0, 0},
          {-1. / 6, -1. / 6, -1. / 6},
          {-1. / 6, 1. / 6, -1. / 6},
          {1. / 24, 1. / 12, 1. / 6},
          {1. / 24, -1. / 12, 1. / 6},
          {0, 0, 1}};
}

// The outer taps as two, then the middle one.
Matrix OfEveryOtherPlace(int tile) {
  Matrix rows;
  for (const std::vector<double>& outer : OfTwoTaps(tile)) rows.push_back({outer[0], 0, outer[1]});
  rows.push_back({0, 1, 0});
  return rows;
}

Matrix MatrixOf(const WinogradKernels& kernels) {
  if (kernels.stride == 2) return OfEveryOtherPlace(kernels.tile);
  return kernels.taps == 2 ? OfTwoTaps(kernels.tile) : OfThreeTaps(kernels.tile);
}

// Calls write(number, value) for the transform of a filter whose numbers are at(i, j).
template <typename At, typename Write>
void TransformFilter(const Matrix& g, const At& at, const Write& write) {
  const int rows = static_cast<int>(g.size()), taps = static_cast<int>(g.front().size());
  for (int i = 0; i < rows; ++i) {
    double row[3] = {};
    for (int k = 0; k < taps; ++k) {
      for (int j = 0; j < taps; ++j) row[j] += g[i][k] * at(k, j);
    }
    for (int j = 0; j < rows; ++j) {
      double value = 0;
      for (int k = 0; k < taps; ++k) value += row[k] * g[j][k];
      write(i * rows + j, static_cast<float>(value));
    }
  }
}

// Each tap along the depth has channels of its own, one tap's behind the other's.
int64_t ChannelsOf(const View& view) { return view.dims[1] * (view.dims.size() == 5 ? view.dims[2] : 1); }

int64_t AddressOf(const View& view, int64_t channel) {
  const int64_t tap = channel / view.dims[1];
  return channel % view.dims[1] * view.strides[1] + (tap == 0 ? 0 : tap * view.strides[2]);
}

void PackPanel(const float* weights, const View& view, const WinogradKernels& kernels, int64_t width,
               bool by_panels, int64_t panel, float* packed) {
  const Matrix matrix = MatrixOf(kernels);
  const int64_t outputs = view.dims[0], channels = ChannelsOf(view), panels = Ceil(outputs, width);
  const size_t rank = view.dims.size();
  const int64_t down = view.strides[rank - 2], right = view.strides[rank - 1];
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t k = 0; k < width; ++k) {
      const int64_t out = panel * width + k;
      const float* filter = weights + out * view.strides[0] + AddressOf(view, c);
      TransformFilter(
          matrix, [&](int i, int j) { return out < outputs ? filter[i * down + j * right] : 0.0F; },
          [&](int64_t number, float value) {
            const int64_t unit = by_panels ? panel * kernels.filters() + number : number * panels + panel;
            packed[(unit * channels + c) * width + k] = value;
          });
    }
  }
}

}  // namespace

AlignedBuffer PackWinogradWeights(const float* weights, const View& view, const WinogradKernels& kernels,
                                  int64_t panel, bool by_panels, int threads) {
  const int64_t panels = Ceil(view.dims[0], panel);
  AlignedBuffer packed(kernels.filters() * panels * ChannelsOf(view) * panel * sizeof(float));
  PreferLargePages(packed);
  float* to = reinterpret_cast<float*>(packed.data());
  ParallelFor(panels, threads,
              [&](int64_t i) { PackPanel(weights, view, kernels, panel, by_panels, i, to); });
  return packed;
}

}  // namespace collage::kernels
