// Classifies an image of ones with a bundled program: bundle FOLDER
#include <algorithm>
#include <iostream>
#include <unity_collage.hpp>

int main(int argc, char** argv) try {
  collage::Program program(argc > 1 ? argv[1] : "bundle");
  const collage_value input = program.Inputs().at(0), result = program.Results().at(0);
  const auto elements = [](const collage_value& value) {
    int64_t count = 1;
    for (int i = 0; i < value.ndim; ++i) count *= value.shape[i];
    return static_cast<size_t>(count);
  };
  std::vector<float> image(elements(input), 1.0f), scores(elements(result));
  program.Run({collage::Tensor(image.data(), {input.shape, input.shape + input.ndim})},
              {collage::Tensor(scores.data(), {result.shape, result.shape + result.ndim})});
  const auto best = std::max_element(scores.begin(), scores.end());
  std::cout << input.name << " -> " << result.name << ": " << best - scores.begin() << " of " << scores.size()
            << ", first " << scores[0] << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << "bundle: " << error.what() << "\n";
  return 1;
}
