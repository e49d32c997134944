#include "layers/draft_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/test_tensors.h"
#include "tensor/float8.h"

namespace atom {
namespace {

constexpr int64_t kVocabSize = 4200;  // more than a piece that is quantized at a time
constexpr int64_t kHiddenSize = 96;

class DraftHeadTest : public testing::TestWithParam<bool> {
 protected:
  DraftHeadTest() {
    config_.vocab_size = kVocabSize;
    config_.hidden_size = kHiddenSize;
    weight_ = ops::random_tensor({kVocabSize, kHiddenSize}, DType::kFloat32, 1);
    hidden_ = ops::random_tensor({3, kHiddenSize}, DType::kFloat32, 2);
  }

  // A head of its own weight, or of an embedding's.
  void load(VocabParallelEmbedding& embedding, ParallelLMHead& head) {
    Module& owner = GetParam() ? static_cast<Module&>(embedding) : head;
    owner.allocate_parameters(stream_);
    ASSERT_TRUE(owner.named_parameters().front().parameter->load(weight_).ok());
    ASSERT_TRUE(owner.finish_load(stream_).ok());
  }

  template <typename Head>
  Tensor logits_of(const Head& head) {
    Workspace workspace(1 << 20);
    const LayerStorage storage;
    const ForwardContext context{.stream = stream_,
                                 .workspace = workspace,
                                 .token_ids = {},
                                 .positions = {},
                                 .batch = {},
                                 .storage = storage};
    const Tensor logits = Tensor::empty({hidden_.size(0), kVocabSize}, DType::kFloat32);
    head.forward(hidden_, logits, context);
    return logits;
  }

  // By the weight in FP8, each row divided by its largest magnitude over 448.
  double expected_logit(int64_t row, int64_t id) const {
    const float* weight = weight_.data<float>() + id * kHiddenSize;
    float largest = 0;
    for (int64_t k = 0; k < kHiddenSize; ++k) largest = std::max(largest, std::fabs(weight[k]));
    const float scale = largest / 448.0f;
    double sum = 0;
    for (int64_t k = 0; k < kHiddenSize; ++k) {
      const auto code = static_cast<double>(to_float(from_float<Float8E4M3>(weight[k] / scale)));
      sum += code * hidden_.data<float>()[row * kHiddenSize + k];
    }
    return sum * scale;
  }

  ThreadPool pool_{2};
  Stream stream_{&pool_};
  ModelConfig config_;
  BuildContext build_{config_, DType::kFloat32, 64};
  Tensor weight_, hidden_;
};

TEST_P(DraftHeadTest, MultipliesByTheHeadInFp8) {
  build_.float8_draft_head = true;
  VocabParallelEmbedding embedding(build_, GetParam());
  ParallelLMHead head(build_, GetParam() ? &embedding : nullptr);
  DraftHead draft(build_, head);
  const int64_t planned = draft.resident_bytes();
  EXPECT_GE(planned, kVocabSize * (kHiddenSize + int64_t{sizeof(float)}));
  ASSERT_NO_FATAL_FAILURE(load(embedding, head));
  ASSERT_TRUE(draft.finish_load(stream_).ok());
  EXPECT_EQ(draft.resident_bytes(), planned);
  const Tensor logits = logits_of(draft);
  for (int64_t row = 0; row < hidden_.size(0); ++row) {
    for (int64_t id = 0; id < kVocabSize; ++id) {
      EXPECT_NEAR(logits.data<float>()[row * kVocabSize + id], expected_logit(row, id), 2e-5);
    }
  }
}

TEST_P(DraftHeadTest, WithoutACopyItIsTheHead) {
  VocabParallelEmbedding embedding(build_, GetParam());
  ParallelLMHead head(build_, GetParam() ? &embedding : nullptr);
  DraftHead draft(build_, head);
  EXPECT_EQ(draft.resident_bytes(), 0);
  ASSERT_NO_FATAL_FAILURE(load(embedding, head));
  ASSERT_TRUE(draft.finish_load(stream_).ok());
  const Tensor logits = logits_of(draft), expected = logits_of(head);
  EXPECT_TRUE(std::ranges::equal(std::span(logits.data<float>(), logits.num_elements()),
                                 std::span(expected.data<float>(), expected.num_elements())));
}

INSTANTIATE_TEST_SUITE_P(Weights, DraftHeadTest, testing::Bool(), [](const auto& tested) {
  return std::string(tested.param ? "Tied" : "Own");
});

}  // namespace
}  // namespace atom
