// Llama, Qwen3 and Qwen3-MoE in double, one token after the other by the textbook: what a golden
// case with quantized activations is held against. Quantization rounds values that lie on the
// boundary of two codes either way, and each such code moves everything behind it by the precision
// of its format. So a computation is compared given its own codes: every input of a linear layer
// that it read has to be a right rounding of what this one computes from the inputs before it, and
// is then taken in the place of that.
//
// Formulas are those of Hugging Face's models; weights are read and dequantized by this file alone.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/model_config.h"
#include "ops/quantize/quantize_in_double.h"
#include "tests/golden/input_recorder.h"
#include "tests/support/tensor_file.h"

namespace atom {

// Which activations are quantized before a matrix multiplies them.
enum class QuantizedInputs {
  kNone,
  kLinears,  // but those of experts, as in the golden logits
  kAll,
};

class ReferenceDecoder {
 public:
  static bool supports(const ModelConfig& config);

  // Of a checkpoint in one file.
  static Result<ReferenceDecoder> open(const std::string& folder, const ModelConfig& config);

  // [num_tokens][vocab_size], quantizing by itself.
  std::vector<std::vector<float>> logits(std::span<const int32_t> ids, QuantizedInputs quantized);
  // Given what a model with so many of its inputs quantized has read. An error says which value was
  // none that it could have read.
  Result<std::vector<std::vector<float>>> logits(std::span<const int32_t> ids,
                                                 const LinearInputs& inputs,
                                                 QuantizedInputs quantized = QuantizedInputs::kAll);

 private:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;
  struct Matrix {
    int64_t rows = 0, columns = 0;
    Row values;
  };

  ReferenceDecoder(TensorFile file, ModelConfig config);

  Rows run(std::span<const int32_t> ids);
  void attend(const std::string& layer, Rows& hidden);
  void feed_forward(const std::string& layer, Rows& hidden);
  void run_experts(const std::string& block, const Rows& x, Rows& hidden);

  Rows normalized(const Rows& rows, const std::string& name);
  void rotate(double* head, size_t position) const;
  // What layers that are computed as one, of which `name` is the first, read of rows `x`: codes, or
  // rows that each has still to quantize.
  Rows inputs(const std::string& name, const Rows& x);
  Row input(const std::string& name, const Row& x, size_t token);
  bool is_close(const std::string& name, const Row& x, const LinearInput& read) const;
  // Of such a row.
  Row linear(const std::string& name, const Row& read);
  Row quantized(const std::string& name, const Row& x) const;
  ops::RowInDouble codes_of(const std::string& name, const Row& x) const;
  Row product(const std::string& name, const Row& x);
  const Matrix& matrix(const std::string& name);
  Matrix load(const std::string& name) const;

  TensorFile file_;
  ModelConfig config_;
  std::map<std::string, Matrix> matrices_;

  // Of the current run.
  QuantizedInputs quantized_ = QuantizedInputs::kNone;
  const LinearInputs* replayed_ = nullptr;
  size_t call_ = 0;         // of a linear layer
  bool has_codes_ = false;  // what inputs() gave
  std::string problem_;
};

}  // namespace atom
