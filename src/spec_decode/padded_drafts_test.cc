// Rounds of a fixed shape against EagleProposer's, which has no padding.
#include "spec_decode/padded_drafts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "spec_decode/eagle_proposer.h"

namespace atom {
namespace {

constexpr int32_t kBlockSize = 4;
constexpr int32_t kNumIds = 61;
constexpr int64_t kMaxSeqs = 6;

// Mixes a row's state with its token, its place and all that its sequence's places hold, so that a
// wrong one of these gives another draft.
class MixingModel : public DraftModel {
 public:
  explicit MixingModel(int num_layers) : num_layers_(num_layers), cache_(num_layers) {}

  const WeightMapping* weight_mapping() const override { return nullptr; }
  int num_layers() const override { return num_layers_; }
  int64_t hidden_size() const override { return 1; }
  std::span<const int> aux_layers() const override { return {}; }
  int64_t num_ids() const override { return kNumIds; }
  Tensor token_table() const override { return {}; }

  Tensor forward(const Tensor& hidden,
                 const Tensor& hidden_rows,
                 int draft,
                 const ForwardContext& context) const override {
    const ops::PagedBatch& batch = context.batch;
    std::map<int32_t, int64_t>& cache = cache_[std::min(draft, num_layers_ - 1)];
    const Tensor mixed = context.workspace.tensor({context.num_tokens(), 1}, DType::kFloat32);
    const auto at = [](const Tensor& values, int64_t i) { return values.data<int32_t>()[i]; };
    for (int64_t s = 0; s < batch.seq_lens.size(0); ++s) {
      const int32_t begin = at(batch.query_start, s), end = at(batch.query_start, s + 1);
      for (int32_t row = begin; row < end; ++row) {
        const int32_t slot = at(batch.slot_mapping, row);
        int64_t sum = static_cast<int64_t>(hidden.data<float>()[at(hidden_rows, row)]) * 31 +
                      at(context.token_ids, row) * 7 + draft;
        if (slot >= 0) cache[slot] = sum % 997;
        const int32_t num_seen = std::max(0, at(batch.seq_lens, s) - (end - 1 - row));
        for (int32_t place = 0; place < num_seen; ++place) {
          const int64_t width = batch.block_tables.size(1);
          const int32_t block = at(batch.block_tables, s * width + place / kBlockSize);
          // A row that counts nowhere reads a place that none wrote.
          const auto held = cache.find(block * kBlockSize + place % kBlockSize);
          if (held != cache.end()) sum += held->second * (place + 1);
        }
        EXPECT_EQ(at(context.positions, row), slot < 0 ? 0 : num_seen - 1);
        mixed.data<float>()[row] = static_cast<float>(sum % 9973);
      }
    }
    return mixed;
  }

  void compute_logits(const Tensor& hidden,
                      const Tensor& logits,
                      const ForwardContext&) const override {
    float* row = logits.data<float>();
    for (int64_t i = 0; i < hidden.size(0); ++i, row += kNumIds) {
      std::fill_n(row, kNumIds, 0.0f);
      row[static_cast<int64_t>(hidden.data<float>()[i]) % kNumIds] = 1;
    }
  }

  const std::vector<std::map<int32_t, int64_t>>& cache() const { return cache_; }

 private:
  const int num_layers_;
  mutable std::vector<std::map<int32_t, int64_t>> cache_;  // of each layer, by slot
};

struct Crowd {
  std::vector<std::vector<int32_t>> token_ids;
  std::vector<std::vector<int32_t>> block_ids;
  std::vector<DraftRequest> requests;
};

// Sequences of which a step had up to `queries` rows each, one behind the other; all rows but the
// rejected ones count.
Crowd random_crowd(int64_t count, int32_t queries, int32_t num_drafts, std::mt19937& random) {
  const auto draw = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution(low, high)(random);
  };
  Crowd crowd;
  int32_t row = 0, block = 0;
  for (int64_t s = 0; s < count; ++s) {
    const int32_t num_rows = draw(1, queries), first = draw(0, 9);
    std::vector<int32_t> tokens, blocks;
    for (int32_t i = 0; i < first + num_rows + 1; ++i) tokens.push_back(draw(0, kNumIds - 1));
    const int32_t num_places = first + num_rows + draw(0, num_drafts);
    while (std::ssize(blocks) * kBlockSize < num_places) blocks.push_back(block++);
    crowd.requests.push_back({.token_ids = {},
                              .block_ids = {},
                              .first_position = first,
                              .num_rows = num_rows,
                              .first_row = row,
                              .num_settled = first,
                              .num_drafts = draw(0, num_drafts)});
    row += draw(num_rows, queries);
    crowd.token_ids.push_back(std::move(tokens));
    crowd.block_ids.push_back(std::move(blocks));
  }
  for (size_t s = 0; s < crowd.requests.size(); ++s) {
    crowd.requests[s].token_ids = crowd.token_ids[s];
    crowd.requests[s].block_ids = crowd.block_ids[s];
  }
  return crowd;
}

class PaddedDraftsTest : public testing::TestWithParam<int> {
 protected:
  PaddedDraftsTest() {
    config_.block_size = kBlockSize;
    config_.max_model_len = 64;
    config_.max_num_seqs = kMaxSeqs;
    config_.max_num_batched_tokens = 64;
    config_.num_speculative_tokens = 3;
    hidden_ = Tensor::empty({64, 1}, DType::kFloat32);
    for (int i = 0; i < 64; ++i) hidden_.data<float>()[i] = static_cast<float>(i * 17 % 101);
  }

  // The context of a step of the shape; only what a round reads of it.
  ForwardContext step_of(const PaddedDraftShape& shape, const Crowd& crowd) {
    const int64_t width = 16;
    const Tensor tables = Tensor::empty({shape.num_seqs(), width}, DType::kInt32);
    std::fill_n(tables.data<int32_t>(), shape.num_seqs() * width, -1);
    for (size_t s = 0; s < crowd.block_ids.size(); ++s) {
      std::ranges::copy(crowd.block_ids[s], tables.data<int32_t>() + s * width);
    }
    ops::PagedBatch paged;
    paged.block_tables = tables;
    return {.stream = stream_,
            .workspace = workspace_,
            .token_ids = {},
            .positions = {},
            .batch = paged,
            .storage = storage_};
  }

  SchedulerConfig config_;
  const ParallelContext parallel_;
  ThreadPool pool_{1};
  Stream stream_{&pool_};
  Workspace workspace_{1 << 20};
  LayerStorage storage_;
  Tensor hidden_;
};

TEST_P(PaddedDraftsTest, DraftWhatPassesWithoutPaddingDraft) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    SCOPED_TRACE(trial);
    const int32_t queries = trial % 4 + 1, num_drafts = trial % 3 + 1;
    const int64_t batch = std::uniform_int_distribution<int64_t>(1, kMaxSeqs)(random);
    const int64_t count = std::uniform_int_distribution<int64_t>(0, batch)(random);
    const Crowd crowd = random_crowd(count, queries, num_drafts, random);
    const PaddedDraftShape shape{batch, queries, num_drafts};
    const ForwardContext step = step_of(shape, crowd);

    const MixingModel expected(GetParam()), padded(GetParam());
    EagleProposer proposer(expected, config_, parallel_, kNumIds, stream_);
    const auto drafts = proposer.propose(crowd.requests, hidden_, step);
    HostMirror places(stream_, kMaxSeqs * config_.num_speculative_tokens);
    PaddedDrafts rounds(padded, config_, kNumIds, stream_, places);
    EXPECT_EQ(rounds.find(batch, queries), nullptr);
    rounds.run(shape, crowd.requests, hidden_, step);

    for (size_t s = 0; s < drafts.size(); ++s) {
      EXPECT_EQ(std::ssize(drafts[s]), crowd.requests[s].num_wanted(GetParam(), kBlockSize));
      for (size_t d = 0; d < drafts[s].size(); ++d) {
        EXPECT_EQ(places.host()[d * batch + s], drafts[s][d]) << s << ' ' << d;
      }
    }
    EXPECT_EQ(padded.cache(), expected.cache());
  }
}

TEST_P(PaddedDraftsTest, WithoutDraftsTheCacheFollows) {
  std::mt19937 random(8);
  Crowd crowd = random_crowd(4, 1, 1, random);
  for (DraftRequest& request : crowd.requests) request.num_drafts = 0;
  const PaddedDraftShape shape{5, 1, 0};
  const ForwardContext step = step_of(shape, crowd);
  const MixingModel expected(GetParam()), padded(GetParam());
  EagleProposer(expected, config_, parallel_, kNumIds, stream_)
      .propose(crowd.requests, hidden_, step);
  HostMirror places(stream_, kMaxSeqs * config_.num_speculative_tokens);
  PaddedDrafts(padded, config_, kNumIds, stream_, places).run(shape, crowd.requests, hidden_, step);
  EXPECT_EQ(padded.cache(), expected.cache());
  EXPECT_FALSE(padded.cache()[0].empty());
}

INSTANTIATE_TEST_SUITE_P(Layers, PaddedDraftsTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace atom
