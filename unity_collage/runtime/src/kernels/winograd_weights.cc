#include "kernels/winograd_weights.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/pool.h"

namespace collage::kernels {
namespace {

// The matrix G of an algorithm, which transforms a filter g to G g G^T. F(m, r) computes m results of r taps.
using Matrix = std::vector<std::vector<double>>;

// F(tile, 2).
Matrix TwoTapMatrix(int tile) {
  if (tile == 2) return {{1, 0}, {1, 1}, {0, 1}};
  return {{1. / 2, 0}, {-1. / 2, -1. / 2}, {-1. / 6, 1. / 6}, {1. / 6, 1. / 3}, {0, 1}};
}

// F(tile, 3).
Matrix ThreeTapMatrix(int tile) {
  if (tile == 2) return {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
  return {{1. / 4, 0, 0},
          {-1. / 6, -1. / 6, -1. / 6},
          {-1. / 6, 1. / 6, -1. / 6},
          {1. / 24, 1. / 12, 1. / 6},
          {1. / 24, -1. / 12, 1. / 6},
          {0, 0, 1}};
}

// Three taps with a stride of 2: F(tile, 2) of the outer taps, then the middle tap.
Matrix StrideTwoMatrix(int tile) {
  Matrix rows;
  for (const std::vector<double>& outer : TwoTapMatrix(tile)) rows.push_back({outer[0], 0, outer[1]});
  rows.push_back({0, 1, 0});
  return rows;
}

Matrix MatrixOf(const WinogradKernels& kernels) {
  if (kernels.stride == 2) return StrideTwoMatrix(kernels.tile);
  return kernels.taps == 2 ? TwoTapMatrix(kernels.tile) : ThreeTapMatrix(kernels.tile);
}

// Eight filters side by side, so that their transforms are loops over vectors.
constexpr int kLanes = 8;
using Lanes = std::array<double, kLanes>;

void AddProduct(double factor, const Lanes& values, Lanes* sum) {
  for (int lane = 0; lane < kLanes; ++lane) (*sum)[lane] += factor * values[lane];
}

// Transforms filters with elements filters[i * taps + j], and calls write(index, values) for each result.
template <typename Write>
void TransformFilters(const Matrix& g, const Lanes* filters, const Write& write) {
  const int rows = static_cast<int>(g.size()), taps = static_cast<int>(g.front().size());
  for (int i = 0; i < rows; ++i) {
    Lanes row[3] = {};
    for (int k = 0; k < taps; ++k) {
      for (int j = 0; j < taps; ++j) AddProduct(g[i][k], filters[k * taps + j], &row[j]);
    }
    for (int j = 0; j < rows; ++j) {
      Lanes values = {};
      for (int k = 0; k < taps; ++k) AddProduct(g[j][k], row[k], &values);
      write(i * rows + j, values);
    }
  }
}

// The channels of all taps along the depth, those of the first tap first.
int64_t ChannelsOf(const View& view) { return view.dims[1] * (view.dims.size() == 5 ? view.dims[2] : 1); }

int64_t ChannelOffset(const View& view, int64_t channel) {
  const int64_t tap = channel / view.dims[1];
  return channel % view.dims[1] * view.strides[1] + (tap == 0 ? 0 : tap * view.strides[2]);
}

void PackPanel(const float* weights, const View& view, const WinogradKernels& kernels, int64_t width,
               bool by_panels, int64_t panel, float* packed) {
  const Matrix matrix = MatrixOf(kernels);
  const int64_t outputs = view.dims[0], channels = ChannelsOf(view), panels = Ceil(outputs, width);
  const size_t rank = view.dims.size();
  const int64_t down = view.strides[rank - 2], right = view.strides[rank - 1];
  const int taps = static_cast<int>(matrix.front().size());
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t first = 0; first < width; first += kLanes) {
      const int lanes = static_cast<int>(std::min<int64_t>(kLanes, width - first));
      Lanes filters[9] = {};
      for (int lane = 0; lane < lanes && panel * width + first + lane < outputs; ++lane) {
        const float* filter =
            weights + (panel * width + first + lane) * view.strides[0] + ChannelOffset(view, c);
        for (int tap = 0; tap < taps * taps; ++tap)
          filters[tap][lane] = filter[tap / taps * down + tap % taps * right];
      }
      TransformFilters(matrix, filters, [&](int64_t index, const Lanes& values) {
        const int64_t block = by_panels ? panel * kernels.filters() + index : index * panels + panel;
        float* to = packed + (block * channels + c) * width + first;
        for (int lane = 0; lane < lanes; ++lane) to[lane] = static_cast<float>(values[lane]);
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
