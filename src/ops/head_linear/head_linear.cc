#include "ops/head_linear/head_linear.h"

#include <vector>

#include "ops/linear/linear_variants.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// The first `size` elements of each head's part.
std::vector<Tensor> parts_of(const Tensor& rows, int64_t num_heads, int64_t size) {
  CHECK(rows.size(1) % num_heads == 0);
  const int64_t pitch = rows.size(1) / num_heads;
  CHECK(size <= pitch);
  std::vector<Tensor> parts;
  for (int64_t head = 0; head < num_heads; ++head) {
    parts.push_back(rows.narrow(1, head * pitch, size));
  }
  return parts;
}

}  // namespace

void head_linear(const Stream& stream,
                 const Tensor& x,
                 std::span<const LinearWeight> weights,
                 const Tensor& y,
                 Workspace& scratch) {
  TensorCheck("head_linear")
      .tensor("x", x, {"T", "x_width"}, x.dtype())
      .tensor("y", y, {"T", "y_width"}, x.dtype());
  CHECK(!weights.empty());
  if (x.size(0) == 0) return;
  const auto num_heads = static_cast<int64_t>(weights.size());
  const std::vector<Tensor> inputs = parts_of(x, num_heads, weights.front().in_features);
  const std::vector<Tensor> outputs = parts_of(y, num_heads, weights.front().out_features);
  const Tensor no_bias;
  if (!stream.device().is_cpu()) {
    for (size_t head = 0; head < weights.size(); ++head) {
      linear(stream, inputs[head], weights[head], no_bias, outputs[head], scratch);
    }
    return;
  }
  std::vector<LinearCall> calls;
  for (size_t head = 0; head < weights.size(); ++head) {
    calls.push_back({inputs[head], weights[head], no_bias, outputs[head]});
    check_linear_call("head_linear", calls.back(), x.dtype());
  }
  const OperatorWork work = linear_work(calls.front());
  if (stream.trace() != nullptr && stream.trace()->is_started()) {
    stream.trace()->begin(
        "head_linear", "many", {.bytes = num_heads * work.bytes, .flops = num_heads * work.flops});
  }
  linear_many(stream, calls, scratch);
}

}  // namespace atom::ops
