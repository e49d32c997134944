#include "runner/device_sampler.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/argmax/argmax.h"
#include "tensor/pinned_tensor.h"

namespace atom {
namespace {

// Rows of logits that the host looks at together.
constexpr int64_t kHostRows = 64;

}  // namespace

DeviceSampler::DeviceSampler(const Stream& stream,
                             int64_t max_rows,
                             int64_t vocab_size,
                             int64_t num_sampled_ids)
    : stream_(&stream),
      host_stream_(&stream.pool()),
      num_sampled_ids_(num_sampled_ids),
      ids_(stream, max_rows),
      host_logits_(pinned_tensor(
          stream.device(), {std::min(max_rows, kHostRows), vocab_size}, DType::kFloat32)) {}

Tensor DeviceSampler::choose_largest(const Tensor& logits, Workspace& workspace) {
  const Tensor ids = ids_.view(0, {logits.size(0)});
  ops::argmax(*stream_, logits, num_sampled_ids_, ids, workspace);
  return ids;
}

Tensor DeviceSampler::fetch_rows(const Tensor& logits, std::span<const size_t> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  for (int64_t i = 0; i < count; ++i) {
    const Tensor row = logits.narrow(0, static_cast<int64_t>(rows[i]), 1);
    stream_->queue().copy(host_logits_.narrow(0, i, 1).raw_data(), row.raw_data(), row.num_bytes());
  }
  stream_->queue().synchronize();
  return host_logits_.narrow(0, 0, count);
}

void DeviceSampler::sample(const Tensor& logits,
                           std::span<const SamplingRow> rows,
                           std::span<SampledToken> out) {
  const auto num_rows = static_cast<int64_t>(rows.size());
  ids_.fetch(0, num_rows);
  stream_->queue().synchronize();
  std::vector<size_t> others;
  for (size_t row = 0; row < rows.size(); ++row) {
    const int32_t id = ids_.host()[row];
    // Without a choice the host finds out why.
    if (id < 0 || !takes_largest_logit(rows[row])) {
      others.push_back(row);
    } else {
      out[row] = {.token_id = id, .status = {}, .logprobs = {}};
    }
  }
  const auto step = static_cast<size_t>(host_logits_.size(0));
  for (size_t begin = 0; begin < others.size(); begin += step) {
    const auto part = std::span(others).subspan(begin, std::min(step, others.size() - begin));
    std::vector<SamplingRow> requests;
    for (const size_t row : part) requests.push_back(rows[row]);
    std::vector<SampledToken> sampled(part.size());
    sampler_.sample(host_stream_, fetch_rows(logits, part), requests, sampled);
    for (size_t i = 0; i < part.size(); ++i) out[part[i]] = std::move(sampled[i]);
  }
}

void DeviceSampler::score(const Tensor& logits,
                          std::span<const ScoredToken> tokens,
                          std::span<Result<TokenLogprobs>> out) {
  std::vector<size_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  const auto step = static_cast<size_t>(host_logits_.size(0));
  for (size_t begin = 0; begin < rows.size(); begin += step) {
    const size_t count = std::min(step, rows.size() - begin);
    const Tensor fetched = fetch_rows(logits, std::span(rows).subspan(begin, count));
    sampler_.score(host_stream_, fetched, tokens.subspan(begin, count), out.subspan(begin, count));
  }
}

}  // namespace atom
