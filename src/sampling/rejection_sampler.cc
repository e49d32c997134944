#include "sampling/rejection_sampler.h"

#include <atomic>
#include <cmath>
#include <utility>

#include "sampling/philox.h"
#include "tensor/tensor_check.h"

namespace atom {

RejectionSampler::RejectionSampler(double forced_acceptance)
    : forced_acceptance_(forced_acceptance) {}

void RejectionSampler::sample(const Stream& stream,
                              const Tensor& logits,
                              std::span<const DraftedSequence> sequences,
                              std::span<std::vector<SampledToken>> out) {
  TensorCheck("verify").tensor("logits", logits, {"num_rows", "vocab_size"}, DType::kFloat32);
  CHECK(out.size() == sequences.size());
  std::vector<int64_t> first_rows;
  int64_t num_rows = 0;
  for (const DraftedSequence& sequence : sequences) {
    CHECK(sequence.state->vocab_size() <= logits.size(1));
    CHECK((sequence.allowed.empty() || sequence.allowed.size() == sequence.drafts.size() + 1));
    first_rows.push_back(num_rows);
    num_rows += 1 + std::ssize(sequence.drafts);
  }
  CHECK(num_rows == logits.size(0));

  ThreadPool& pool = stream.pool();
  scratch_.resize(std::max(scratch_.size(), static_cast<size_t>(pool.num_threads())));
  const int64_t stride = logits.stride(0);
  const auto run = [&](size_t i, RowScratch& scratch) {
    float* row = logits.data<float>() + first_rows[i] * stride;
    sample_one(sequences[i], row, stride, scratch, out[i]);
  };
  if (sequences.size() == 1) return run(0, scratch_[0]);
  std::atomic<size_t> next{0};
  pool.share([&](int worker) {
    for (size_t i = next++; i < sequences.size(); i = next++) run(i, scratch_[worker]);
  });
}

template <typename Sample>
void RejectionSampler::verify(const DraftedSequence& sequence,
                              std::vector<SampledToken>& out,
                              const Sample& sample) const {
  SamplingState& state = *sequence.state;
  const auto num_drafts = std::ssize(sequence.drafts);
  const int32_t forced = forced_acceptance_ < 0 ? 0 : num_forced(state);
  out.clear();
  for (int64_t row = 0; row <= num_drafts; ++row) {
    SampledToken& token = out.emplace_back();
    sample(row, token);
    if (!token.status.ok()) return;
    if (row < std::min<int64_t>(forced, num_drafts)) token.token_id = sequence.drafts[row];
    state.append(token.token_id);
    if (row == num_drafts || (forced_acceptance_ >= 0 && row >= forced)) return;
    if (token.token_id != sequence.drafts[row]) return;
  }
}

void RejectionSampler::sample_one(const DraftedSequence& sequence,
                                  float* logits,
                                  int64_t stride,
                                  RowScratch& scratch,
                                  std::vector<SampledToken>& out) const {
  verify(sequence, out, [&](int64_t row, SampledToken& token) {
    const TokenBitmask allowed = sequence.allowed.empty() ? nullptr : sequence.allowed[row];
    sample_row({sequence.state, allowed}, logits + row * stride, scratch, token);
  });
}

void RejectionSampler::accept(const DraftedSequence& sequence,
                              std::span<SampledToken> sampled,
                              std::vector<SampledToken>& out) const {
  CHECK(sampled.size() == sequence.drafts.size() + 1);
  verify(sequence, out, [&](int64_t row, SampledToken& token) { token = std::move(sampled[row]); });
}

int32_t RejectionSampler::num_forced(const SamplingState& state) const {
  const double whole = std::floor(forced_acceptance_);
  const double drawn = 0x1p-32 * noise_word(*state.params().seed, state.num_generated(), 0);
  return static_cast<int32_t>(whole) + (drawn < forced_acceptance_ - whole ? 1 : 0);
}

}  // namespace atom
