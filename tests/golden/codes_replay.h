// With quantized activations: what a model gives, held against the reference given the codes that
// the model has read.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

#include "tests/golden/compare_logits.h"
#include "tests/golden/golden_runner.h"
#include "tests/golden/input_recorder.h"
#include "tests/golden/reference_decoder.h"

namespace atom {

class CodesReplay {
 public:
  CodesReplay(const std::string& folder, const ModelConfig& config) {
    Result<ReferenceDecoder> reference = ReferenceDecoder::open(folder, config);
    CHECK(reference.ok());
    reference_.emplace(std::move(*reference));
  }

  InputRecorder* recorder() { return &recorder_; }

  // `result` is that of the run's `sequence`, whose prompt `earlier` had before, or itself.
  void check(const GoldenPrompt& prompt,
             const GoldenResult& result,
             size_t sequence,
             size_t earlier) {
    const std::vector<std::vector<float>>* expected =
        expected_of(prompt, recorder_.inputs_of(sequence, earlier));
    if (expected == nullptr) return;
    std::vector<float> ours, theirs;
    for (size_t t = 0; t < prompt.ids.size(); ++t) {
      const auto found = result.logits.find(static_cast<int32_t>(t));
      if (found == result.logits.end()) continue;
      ours.insert(ours.end(), found->second.begin(), found->second.end());
      theirs.insert(theirs.end(), (*expected)[t].begin(), (*expected)[t].end());
    }
    EXPECT_LE(relative_error(ours, theirs), kFloat32Bound);
  }

 private:
  struct Expected {
    LinearInputs inputs;
    std::vector<std::vector<float>> logits;
  };

  // Computed again only where other codes were read; null where they were wrong.
  const std::vector<std::vector<float>>* expected_of(const GoldenPrompt& prompt,
                                                     LinearInputs inputs) {
    Expected& expected = expected_[prompt.ids];
    if (expected.inputs == inputs) return &expected.logits;
    // The experts' kernels of a device for few tokens read x as it is.
    const bool on_device = std::getenv("ATOM_TEST_DEVICE") != nullptr;
    Result<std::vector<std::vector<float>>> logits = reference_->logits(
        prompt.ids, inputs, on_device ? QuantizedInputs::kLinears : QuantizedInputs::kAll);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    if (!logits.ok()) return nullptr;
    expected = {std::move(inputs), std::move(*logits)};
    return &expected.logits;
  }

  InputRecorder recorder_;
  std::optional<ReferenceDecoder> reference_;
  std::map<std::vector<int32_t>, Expected> expected_;
};

}  // namespace atom
