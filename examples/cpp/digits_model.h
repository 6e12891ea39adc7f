// A two-layer perceptron for 8x8 digits, without any framework: forward, backward, momentum SGD.
// The gradient is a sum over samples, so it can be computed shard by shard.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace digits {

constexpr std::size_t kPixels = 64;
constexpr std::size_t kHidden = 48;
constexpr std::size_t kClasses = 10;
constexpr std::size_t kParameters = (kPixels + 1) * kHidden + (kHidden + 1) * kClasses;

struct Sample {
  std::array<float, kPixels> pixels;
  std::size_t label;
};

// Lines of 64 pixels (0..16) and a label, comma-separated, as scikit-learn's digits.csv. Empty if
// it cannot be read.
inline std::vector<Sample> load(const std::string& path) {
  std::vector<Sample> samples;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    Sample sample{};
    std::size_t i = 0;
    const char* const end = line.data() + line.size();
    for (const char* at = line.data(); at < end && i <= kPixels; ++i) {
      float value = 0;
      const auto [behind, error] = std::from_chars(at, end, value);
      if (error != std::errc() || (behind != end && *behind != ',')) break;
      at = behind + 1;
      if (i < kPixels) sample.pixels[i] = value / 16.0F;
      if (i == kPixels) sample.label = static_cast<std::size_t>(value);
    }
    if (i == kPixels + 1 && sample.label < kClasses) samples.push_back(sample);
  }
  return samples;
}

class Model {
 public:
  explicit Model(std::uint32_t seed) : weights_(kParameters), velocity_(kParameters) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < kPixels * kHidden; ++i)
      weights_[i] = draw(random) / std::sqrt(float{kPixels});
    for (std::size_t i = 0; i < kHidden * kClasses; ++i)
      weights_[kOut + i] = draw(random) / std::sqrt(float{kHidden});
  }

  [[nodiscard]] std::span<float> weights() { return weights_; }
  [[nodiscard]] std::span<float> velocity() { return velocity_; }

  // Adds scale * d(loss)/d(weights) of `sample` to `gradient`; returns the loss.
  float add_gradient(const Sample& sample, float scale, std::span<float> gradient) const {
    std::array<float, kHidden> hidden;
    std::array<float, kClasses> p = forward(sample, &hidden);
    const float loss = -std::log(std::max(p[sample.label], 1e-30F));
    p[sample.label] -= 1.0F;
    std::array<float, kHidden> back{};
    for (std::size_t h = 0; h < kHidden; ++h) {
      for (std::size_t c = 0; c < kClasses; ++c) {
        gradient[kOut + h * kClasses + c] += scale * p[c] * hidden[h];
        if (hidden[h] > 0.0F) back[h] += p[c] * weights_[kOut + h * kClasses + c];
      }
    }
    for (std::size_t c = 0; c < kClasses; ++c) gradient[kOutBias + c] += scale * p[c];
    for (std::size_t i = 0; i < kPixels; ++i) {
      for (std::size_t h = 0; h < kHidden; ++h)
        gradient[i * kHidden + h] += scale * back[h] * sample.pixels[i];
    }
    for (std::size_t h = 0; h < kHidden; ++h) gradient[kHiddenBias + h] += scale * back[h];
    return loss;
  }

  void apply(std::span<const float> gradient, float rate, float momentum) {
    for (std::size_t i = 0; i < kParameters; ++i) {
      velocity_[i] = momentum * velocity_[i] + gradient[i];
      weights_[i] -= rate * velocity_[i];
    }
  }

  [[nodiscard]] bool right(const Sample& sample) const {
    std::array<float, kHidden> hidden;
    const auto p = forward(sample, &hidden);
    return static_cast<std::size_t>(std::max_element(p.begin(), p.end()) - p.begin()) ==
           sample.label;
  }

 private:
  static constexpr std::size_t kHiddenBias = kPixels * kHidden;
  static constexpr std::size_t kOut = kHiddenBias + kHidden;
  static constexpr std::size_t kOutBias = kOut + kHidden * kClasses;

  // Uniform in [-1, 1), the same on every standard library.
  static float draw(std::mt19937& random) {
    return static_cast<float>(random() >> 8) / 8388608.0F - 1.0F;
  }

  std::array<float, kClasses> forward(const Sample& sample,
                                      std::array<float, kHidden>* hidden) const {
    for (std::size_t h = 0; h < kHidden; ++h) (*hidden)[h] = weights_[kHiddenBias + h];
    for (std::size_t i = 0; i < kPixels; ++i) {
      for (std::size_t h = 0; h < kHidden; ++h)
        (*hidden)[h] += sample.pixels[i] * weights_[i * kHidden + h];
    }
    std::array<float, kClasses> out;
    for (std::size_t c = 0; c < kClasses; ++c) out[c] = weights_[kOutBias + c];
    for (std::size_t h = 0; h < kHidden; ++h) {
      (*hidden)[h] = std::max((*hidden)[h], 0.0F);
      for (std::size_t c = 0; c < kClasses; ++c)
        out[c] += (*hidden)[h] * weights_[kOut + h * kClasses + c];
    }
    const float top = *std::max_element(out.begin(), out.end());
    float sum = 0.0F;
    for (float& value : out) sum += value = std::exp(value - top);
    for (float& value : out) value /= sum;
    return out;
  }

  std::vector<float> weights_, velocity_;
};

}  // namespace digits
