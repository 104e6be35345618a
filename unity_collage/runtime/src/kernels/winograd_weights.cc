#include "kernels/winograd_weights.h"

#include "base/pool.h"

namespace collage::kernels {
namespace {

// G of the algorithms: U = G g G^T.
constexpr double kFilter2[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
constexpr double kFilter4[6][3] = {{1. / 4, 0, 0},
                                   {-1. / 6, -1. / 6, -1. / 6},
                                   {-1. / 6, 1. / 6, -1. / 6},
                                   {1. / 24, 1. / 12, 1. / 6},
                                   {1. / 24, -1. / 12, 1. / 6},
                                   {0, 0, 1}};

// Calls write(point, value) for the transform of nine numbers, whose address is at(i, j).
template <typename At, typename Write>
void TransformFilter(int tile, const At& at, const Write& write) {
  const double (*g)[3] = tile == 2 ? kFilter2 : kFilter4;
  for (int i = 0; i < tile + 2; ++i) {
    double row[3] = {};
    for (int k = 0; k < 3; ++k) {
      for (int j = 0; j < 3; ++j) row[j] += g[i][k] * at(k, j);
    }
    for (int j = 0; j < tile + 2; ++j) {
      write(i * (tile + 2) + j, static_cast<float>(row[0] * g[j][0] + row[1] * g[j][1] + row[2] * g[j][2]));
    }
  }
}

void PackPanel(const float* weights, const View& view, const WinogradKernels& kernels, int64_t width,
               bool by_panels, int64_t panel, float* packed) {
  const int64_t outputs = view.dims[0], channels = view.dims[1], panels = Ceil(outputs, width);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t k = 0; k < width; ++k) {
      const int64_t out = panel * width + k;
      const float* filter = weights + out * view.strides[0] + c * view.strides[1];
      TransformFilter(
          kernels.tile,
          [&](int i, int j) {
            return out < outputs ? filter[i * view.strides[2] + j * view.strides[3]] : 0.0F;
          },
          [&](int64_t point, float value) {
            const int64_t unit = by_panels ? panel * kernels.points() + point : point * panels + panel;
            packed[(unit * channels + c) * width + k] = value;
          });
    }
  }
}

}  // namespace

AlignedBuffer PackWinogradWeights(const float* weights, const View& view, const WinogradKernels& kernels,
                                  int64_t panel, bool by_panels, int threads) {
  const int64_t panels = Ceil(view.dims[0], panel);
  AlignedBuffer packed(kernels.points() * panels * view.dims[1] * panel * sizeof(float));
  PreferLargePages(packed);
  float* to = reinterpret_cast<float*>(packed.data());
  ParallelFor(panels, threads,
              [&](int64_t i) { PackPanel(weights, view, kernels, panel, by_panels, i, to); });
  return packed;
}

}  // namespace collage::kernels
