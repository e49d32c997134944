#include "layers/draft_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/test_tensors.h"
#include "tensor/device_arena.h"
#include "tensor/float8.h"

namespace atom {
namespace {

constexpr int64_t kVocabSize = 4200;  // more than a piece that is quantized at a time
constexpr int64_t kHiddenSize = 128;

// The product with the weight in FP8, each row divided by its largest magnitude over 448.
double expected_logit(const Tensor& weights, const Tensor& hidden, int64_t row, int64_t id) {
  const float* weight = weights.data<float>() + id * kHiddenSize;
  float largest = 0;
  for (int64_t k = 0; k < kHiddenSize; ++k) largest = std::max(largest, std::fabs(weight[k]));
  const float scale = largest / 448.0f;
  double sum = 0;
  for (int64_t k = 0; k < kHiddenSize; ++k) {
    const auto code = static_cast<double>(to_float(from_float<Float8E4M3>(weight[k] / scale)));
    sum += code * hidden.data<float>()[row * kHiddenSize + k];
  }
  return sum * scale;
}

// Logits [hidden's rows, kVocabSize] where the stream works.
template <typename Head>
Tensor logits_of(const Head& head, const Tensor& hidden, const Stream& stream) {
  Workspace workspace(stream, 4 << 20);
  const LayerStorage storage;
  const ForwardContext context{.stream = stream,
                               .workspace = workspace,
                               .token_ids = {},
                               .positions = {},
                               .batch = {},
                               .storage = storage};
  const Tensor logits = resident_tensor(stream, {hidden.size(0), kVocabSize}, DType::kFloat32);
  head.forward(hidden, logits, context);
  return logits;
}

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
  const Tensor logits = logits_of(draft, hidden_, stream_);
  for (int64_t row = 0; row < hidden_.size(0); ++row) {
    for (int64_t id = 0; id < kVocabSize; ++id) {
      EXPECT_NEAR(logits.data<float>()[row * kVocabSize + id],
                  expected_logit(weight_, hidden_, row, id),
                  2e-5);
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
  const Tensor logits = logits_of(draft, hidden_, stream_),
               expected = logits_of(head, hidden_, stream_);
  EXPECT_TRUE(std::ranges::equal(std::span(logits.data<float>(), logits.num_elements()),
                                 std::span(expected.data<float>(), expected.num_elements())));
}

INSTANTIATE_TEST_SUITE_P(Weights, DraftHeadTest, testing::Bool(), [](const auto& tested) {
  return std::string(tested.param ? "Tied" : "Own");
});

Tensor bfloat16_of(const Tensor& values) {
  const Tensor rounded = Tensor::empty(values.shape(), DType::kBFloat16);
  copy_convert(values, rounded);
  return rounded;
}

Tensor float32_of(const Tensor& values) {
  const Tensor floats = Tensor::empty(values.shape(), DType::kFloat32);
  copy_convert(values, floats);
  return floats;
}

std::vector<float> fetched(const Tensor& tensor, DeviceQueue& queue) {
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  queue.copy(values.data(), tensor.raw_data(), tensor.num_bytes());
  queue.synchronize();
  return values;
}

// Few rows by the copy, more by the head.
TEST(DraftHead, OnTheGpu) {
  DeviceRuntime* runtime = ops::test_gpu();
  if (runtime == nullptr) GTEST_SKIP() << "no GPU";
  const std::unique_ptr<DeviceQueue> queue = runtime->create_queue();
  ThreadPool pool(2);
  const Stream stream(&pool, queue.get());
  ModelConfig config;
  config.vocab_size = kVocabSize;
  config.hidden_size = kHiddenSize;
  BuildContext build{config, DType::kBFloat16, 64, queue->device()};
  build.float8_draft_head = true;
  ParallelLMHead head(build, nullptr);
  DraftHead draft(build, head);
  const Tensor weight =
      bfloat16_of(ops::random_tensor({kVocabSize, kHiddenSize}, DType::kFloat32, 1));
  head.allocate_parameters(stream);
  Parameter& parameter = *head.named_parameters().front().parameter;
  queue->copy(parameter.data().raw_data(), weight.raw_data(), weight.num_bytes());
  parameter.mark_loaded();
  ASSERT_TRUE(head.finish_load(stream).ok());
  ASSERT_TRUE(draft.finish_load(stream).ok());
  const int64_t most = ops::max_float8_rows(queue->device());
  for (const int64_t num_rows : {int64_t{1}, int64_t{3}, most, most + 1}) {
    if (num_rows == 0) continue;
    SCOPED_TRACE(num_rows);
    const Tensor rows =
        bfloat16_of(ops::random_tensor({num_rows, kHiddenSize}, DType::kFloat32, 2));
    const Tensor hidden = resident_copy(stream, rows);
    const std::vector<float> logits = fetched(logits_of(draft, hidden, stream), *queue);
    if (most > 0 && num_rows > most) {
      EXPECT_EQ(logits, fetched(logits_of(head, hidden, stream), *queue));
      continue;
    }
    const Tensor weights = float32_of(weight), states = float32_of(rows);
    for (size_t i = 0; i < logits.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / kVocabSize;
      const auto id = static_cast<int64_t>(i) % kVocabSize;
      ASSERT_NEAR(logits[i], expected_logit(weights, states, row, id), 1e-4);
    }
  }
}

}  // namespace
}  // namespace atom
