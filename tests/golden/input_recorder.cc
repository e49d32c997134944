#include "tests/golden/input_recorder.h"

#include "base/check.h"
#include "ops/quantize/quantized_rows.h"
#include "tensor/float4.h"
#include "tensor/float8.h"
#include "tests/golden/host_tensor.h"

namespace atom {
namespace {

float code_at(const Tensor& row, int64_t k) {
  const void* data = row.raw_data();
  switch (row.dtype()) {
    case DType::kFloat8E4M3:
      return to_float(static_cast<const Float8E4M3*>(data)[k]);
    case DType::kInt8:
      return static_cast<const int8_t*>(data)[k];
    default:
      return float4_to_float(static_cast<const uint8_t*>(data)[k / 2] >> k % 2 * 4 & 15);
  }
}

// The scales of one row, which are one for all where there is one.
std::vector<float> scales_of(const Tensor& scales, int64_t row) {
  const int64_t count = scales.rank() == 2 ? scales.size(1) : 1;
  const int64_t first = scales.num_elements() == 1 ? 0 : row * count;
  std::vector<float> values;
  for (int64_t i = first; i < first + count; ++i) {
    values.push_back(scales.dtype() == DType::kUInt8 ? e8m0_to_float(scales.data<uint8_t>()[i])
                                                     : scales.data<float>()[i]);
  }
  return values;
}

LinearInput quantized_input(const Tensor& codes, const Tensor& scales, int64_t row) {
  const int64_t size = codes.size(1) * (codes.dtype() == DType::kUInt8 ? 2 : 1);
  const Tensor of_row = codes.narrow(0, row, 1);
  LinearInput input;
  input.scales = scales_of(scales, row);
  const int64_t group = scales.rank() < 2 ? size : scales.dtype() == DType::kUInt8 ? 32 : 128;
  for (int64_t k = 0; k < size; ++k) {
    input.values.push_back(code_at(of_row, k) * input.scales[k / group]);
  }
  return input;
}

}  // namespace

std::vector<LinearInput>& InputRecorder::inputs_of(const Token& token) {
  LinearInputs& inputs = sequences_[token.sequence];
  inputs.resize(token.prompt.size());
  return inputs[token.position];
}

LinearInputs InputRecorder::inputs_of(size_t sequence, size_t earlier) const {
  LinearInputs inputs = sequences_.at(sequence);
  for (size_t position = 0; position < inputs.size(); ++position) {
    if (inputs[position].empty()) inputs[position] = sequences_.at(earlier)[position];
  }
  return inputs;
}

void InputRecorder::begin_step(std::vector<Token> tokens) {
  tokens_ = std::move(tokens);
  for (const Token& token : tokens_) {
    if (token.is_of_prompt()) inputs_of(token).clear();
  }
}

void InputRecorder::on_linear(const Stream& stream,
                              const Tensor& rows,
                              const ops::QuantizedRows& codes) {
  const bool is_quantized = codes.defined();
  const Tensor values = host_copy(stream, is_quantized ? codes.values : rows);
  const Tensor scales = is_quantized ? host_copy(stream, codes.scales) : Tensor();
  CHECK(values.size(0) == static_cast<int64_t>(tokens_.size()));
  for (size_t t = 0; t < tokens_.size(); ++t) {
    if (!tokens_[t].is_of_prompt()) continue;
    const auto row = static_cast<int64_t>(t);
    std::vector<LinearInput>& inputs = inputs_of(tokens_[t]);
    if (is_quantized) {
      inputs.push_back(quantized_input(values, scales, row));
    } else {
      const float* begin = values.data<float>() + row * values.stride(0);
      inputs.push_back({{begin, begin + values.size(1)}, {}});
    }
  }
}

}  // namespace atom
