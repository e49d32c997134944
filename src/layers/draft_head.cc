#include "layers/draft_head.h"

#include <algorithm>
#include <numeric>

#include "ops/quantize/quantize.h"
#include "tensor/device_arena.h"

namespace atom {
namespace {

constexpr ops::QuantFormat kFormat = {QuantDType::kFloat8E4M3, QuantType::kPerToken};

// Where no number of rows is faster by the copy, and it is asked for, all rows read it.
int64_t most_rows(Device device) {
  const int64_t rows = ops::max_float8_rows(device);
  return rows > 0 ? rows : INT64_MAX;
}

}  // namespace

DraftHead::DraftHead(const BuildContext& build, const ParallelLMHead& head)
    : head_(head), max_rows_(most_rows(build.device)) {
  if (!build.float8_draft_head) return;
  copy_ = ops::quantized_weight_meta(head.weight().out_features,
                                     head.weight().in_features,
                                     kFormat,
                                     ops::preferred_weight_layout(build.device));
}

int64_t DraftHead::resident_bytes() const {
  return has_copy() ? copy_.data.num_bytes() + copy_.scales.num_bytes() : 0;
}

void DraftHead::quantize_on_host(const Stream& stream) {
  constexpr int64_t kPieceRows = 4096;
  const int64_t num_rows = copy_.out_features, size = copy_.in_features;
  copy_ = ops::make_quantized_weight(num_rows, size, kFormat, copy_.layout);
  for (int64_t first = 0; first < num_rows; first += kPieceRows) {
    const int64_t count = std::min(kPieceRows, num_rows - first);
    const Tensor ids = Tensor::empty({count}, DType::kInt32);
    std::iota(ids.data<int32_t>(), ids.data<int32_t>() + count, static_cast<int32_t>(first));
    const Tensor rows = Tensor::empty({count, size}, head_.weight().dtype());
    ops::gather_rows(stream, ids, head_.weight(), rows);
    const Tensor codes = Tensor::empty({count, size}, copy_.dtype());
    const Tensor scales = Tensor::empty({count}, DType::kFloat32);
    ops::quantize(stream, rows, {codes, scales});
    ops::pack_rows(stream, codes, first, copy_);
    ops::pack_scales(scales, first, copy_);
  }
}

void DraftHead::quantize_on_device(const Stream& stream) {
  copy_.data = resident_tensor(stream, copy_.data.shape(), copy_.dtype());
  copy_.scales = resident_tensor(stream, copy_.scales.shape(), DType::kFloat32);
  ops::quantize(stream, head_.weight().data, {copy_.data, copy_.scales});
}

Status DraftHead::finish_load(const Stream& stream) {
  if (!has_copy()) return {};
  CHECK(head_.weight().data.raw_data() != nullptr);
  if (stream.device().is_cpu()) {
    quantize_on_host(stream);
  } else {
    quantize_on_device(stream);
  }
  return {};
}

void DraftHead::forward(const Tensor& hidden,
                        const Tensor& logits,
                        const ForwardContext& context) const {
  const bool reads_copy = has_copy() && hidden.size(0) <= max_rows_;
  head_.forward_by(reads_copy ? copy_ : head_.weight(), hidden, logits, context);
}

}  // namespace atom
