#include "tests/support/golden_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "tests/support/tensor_file.h"

namespace atom {
namespace {

Matrix matrix_of(const TensorFile& file, const std::string& name) {
  const std::vector<int64_t>& shape = file.shape(name);
  CHECK(shape.size() == 2u);
  Matrix matrix{shape[0], shape[1], file.values<float>(name, "F32")};
  CHECK(static_cast<int64_t>(matrix.values.size()) == shape[0] * shape[1]);
  return matrix;
}

GoldenPrompt load_prompt(const TensorFile& file, const std::string& prefix) {
  GoldenPrompt prompt;
  prompt.ids = file.values<int32_t>(prefix + "ids", "I32");
  prompt.positions = file.values<int32_t>(prefix + "positions", "I32");
  prompt.logits = matrix_of(file, prefix + "logits");
  if (file.contains(prefix + "logits_act_quant")) {
    prompt.logits_act_quant = matrix_of(file, prefix + "logits_act_quant");
  }
  if (file.contains(prefix + "mtp_logits")) {
    prompt.mtp_positions = file.values<int32_t>(prefix + "mtp_positions", "I32");
    prompt.mtp_logits = file.matrix(prefix + "mtp_logits");
  }
  prompt.greedy = file.values<int32_t>(prefix + "greedy", "I32");
  prompt.greedy_margins = file.values<float>(prefix + "greedy_margins", "F32");
  for (int layer = 0;; ++layer) {
    const std::string name = fmt::format("{}hidden.{}", prefix, layer);
    if (!file.contains(name)) break;
    prompt.hidden.push_back(matrix_of(file, name));
  }
  return prompt;
}

}  // namespace

double GoldenPrompt::bf16_bound() const {
  return std::max(0.03, 2 * oracle_bf16_relative_error);
}

Result<GoldenCase> load_golden_case(const std::string& case_folder) {
  ASSIGN_OR_RETURN(const Json description, read_json_file(case_folder + "/golden.json"));
  ASSIGN_OR_RETURN(const TensorFile file, TensorFile::open(case_folder + "/golden.safetensors"));
  GoldenCase golden;
  golden.folder = case_folder;
  golden.name = std::filesystem::path(case_folder).filename().string();
  try {
    golden.architecture = description.at("architecture");
    const Json& bf16_errors = description.at("oracle_bf16_relative_error");
    for (size_t k = 0; k < description.at("prompts").size(); ++k) {
      GoldenPrompt prompt = load_prompt(file, fmt::format("prompt.{}.", k));
      prompt.oracle_bf16_relative_error = bf16_errors.at(k);
      golden.prompts.push_back(std::move(prompt));
    }
  } catch (const Json::exception& error) {
    return invalid_argument("{}: {}", case_folder, error.what());
  }
  return golden;
}

double relative_error(std::span<const float> ours, std::span<const float> golden) {
  if (ours.size() != golden.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double delta = static_cast<double>(ours[i]) - golden[i];
    difference += delta * delta;
    norm += static_cast<double>(golden[i]) * golden[i];
  }
  const double error = std::sqrt(difference / norm);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

std::string greedy_mismatch(const GoldenPrompt& prompt, std::span<const int32_t> ours) {
  if (ours.size() != prompt.greedy.size()) {
    return fmt::format("{} tokens instead of {}", ours.size(), prompt.greedy.size());
  }
  for (size_t step = 0; step < ours.size(); ++step) {
    if (ours[step] == prompt.greedy[step]) continue;
    const float margin = prompt.greedy_margins[step];
    if (margin <= kDecidedMargin) return "";
    return fmt::format("token {} instead of {} at step {}, where the margin is {}",
                       ours[step],
                       prompt.greedy[step],
                       step,
                       margin);
  }
  return "";
}

}  // namespace atom
