// A gated shared expert of another width than the routed ones is computed apart from their stack:
// widened by inputs that are nothing, it gives what it gave as a slot of the stack.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "tests/golden/golden_runner.h"
#include "tests/golden/test_device.h"
#include "tests/support/golden_case.h"
#include "tests/support/stored_tensor.h"
#include "tests/support/synthetic_checkpoint.h"
#include "tests/support/tensor_file.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

constexpr int64_t kMoreWidth = 32;

// gate_proj and up_proj [width, hidden] with rows of zeros behind, down_proj [hidden, width] with
// columns of zeros.
StoredTensor widened(const std::string& name,
                     std::vector<int64_t> shape,
                     std::vector<float> values) {
  const bool by_columns = name.ends_with("down_proj.weight");
  const size_t rows = static_cast<size_t>(shape[0]), columns = static_cast<size_t>(shape[1]);
  shape[by_columns ? 1 : 0] += kMoreWidth;
  std::vector<float> wide(static_cast<size_t>(shape[0] * shape[1]));
  for (size_t row = 0; row < rows; ++row) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(row * columns),
                columns,
                wide.begin() + static_cast<std::ptrdiff_t>(row) * shape[1]);
  }
  return {name, "F32", shape, bytes_of(wide)};
}

Result<std::vector<float>> logits(const std::string& folder,
                                  const GoldenCase& golden,
                                  int tensor_parallel_size) {
  EngineConfig engine;
  engine.model.dtype = DType::kFloat32;
  engine.parallel.tensor_parallel_size = tensor_parallel_size;
  ASSIGN_OR_RETURN(const std::unique_ptr<GoldenRunner> runner,
                   GoldenRunner::create(folder, engine));
  std::vector<GoldenRunner::Request> requests;
  for (const GoldenPrompt& prompt : golden.prompts) requests.push_back({prompt.ids});
  std::vector<float> all;
  for (const GoldenResult& result : runner->run(requests, {}, /*max_tokens=*/1)) {
    for (const auto& [position, row] : result.logits) all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

TEST(GatedSharedExpert, OfAnotherWidthIsComputedApart) {
  const std::string source = golden_folder() + "/qwen3-next";
  const Result<GoldenCase> golden = load_golden_case(source);
  ASSERT_TRUE(golden.ok());
  const TemporaryFolder as_slot, apart;
  ASSERT_TRUE(materialize_checkpoint(source, as_slot.path()).ok());
  const TensorFile file = TensorFile::open(as_slot.file("model.safetensors")).value();
  const Json description = read_json_file(source + "/checkpoint.json").value();
  std::vector<StoredTensor> tensors;
  for (const auto& [name, tensor] : description.at("tensors").items()) {
    const std::vector<double> wide = file.in_double(name);
    std::vector<float> values(wide.begin(), wide.end());
    const bool is_shared = name.find(".mlp.shared_expert.") != std::string::npos;
    tensors.push_back(is_shared ? widened(name, file.shape(name), std::move(values))
                                : StoredTensor{name, "F32", file.shape(name), bytes_of(values)});
  }
  Json config = read_json_file(source + "/config.json").value();
  config["shared_expert_intermediate_size"] =
      config["shared_expert_intermediate_size"].get<int64_t>() + kMoreWidth;
  ASSERT_TRUE(write_text(apart.file("config.json"), config.dump()).ok());
  ASSERT_TRUE(write_safetensors(apart.file("model.safetensors"), tensors).ok());

  const Result<std::vector<float>> expected = logits(as_slot.path(), *golden, 1);
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  for (const int size : {1, 2}) {
    if (size > 1 && golden_device() != DeviceChoice::kCpu)
      continue;  // ranks are threads of the CPU
    const Result<std::vector<float>> got = logits(apart.path(), *golden, size);
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_LE(relative_error(*got, *expected), kFloat32Bound) << size << " ranks";
  }
}

}  // namespace
}  // namespace atom
