#include "runner/layer_storage.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

const StorageSpec kSpec = {
    .caches = {{"k", {2, 8}, DType::kBFloat16}, {"latent", {5}, DType::kFloat32}},
    .states = {{"conv", {3}, DType::kBFloat16}, {"recurrent", {2, 2}, DType::kFloat32}},
};

TEST(LayerStorage, HasATensorForEachPlane) {
  EXPECT_EQ(kSpec.bytes_per_token(), 2 * 8 * 2 + 5 * 4);
  EXPECT_EQ(kSpec.bytes_per_slot(), 3 * 2 + 2 * 2 * 4);
  ThreadPool pool(1);
  const LayerStorage storage =
      make_layer_storage(Stream(&pool), kSpec, {.num_blocks = 4, .block_size = 16, .num_slots = 3});
  ASSERT_EQ(storage.caches.size(), 2u);
  EXPECT_EQ(storage.caches[0].shape(), (Shape{4, 16, 2, 8}));
  EXPECT_EQ(storage.caches[1].shape(), (Shape{4, 16, 5}));
  ASSERT_EQ(storage.states.size(), 2u);
  EXPECT_EQ(storage.states[0].shape(), (Shape{3, 3}));
  EXPECT_EQ(storage.states[1].shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(storage.cache({.first = 1, .num_planes = 1})[0].raw_data(),
            storage.caches[1].raw_data());
}

// Two full layers, one in a window, and a draft's of another shape.
TEST(LayerStorage, LayersOfDifferentGroupsShareTensors) {
  const CachePlane key = {"k", {2, 8}, DType::kBFloat16, 0};
  const CachePlane window_key = {"k", {2, 8}, DType::kBFloat16, 1};
  const CachePlane draft_key = {"k", {4, 8}, DType::kBFloat16, 0};
  const StorageSpec spec = {.caches = {key, window_key, key, draft_key}, .states = {}};
  EXPECT_EQ(spec.bytes_per_token(), (3 * 2 + 4) * 8 * 2);
  EXPECT_EQ(spec.pool_bytes_per_token(), (2 * 2 + 4) * 8 * 2);
  ThreadPool pool(1);
  const LayerStorage storage =
      make_layer_storage(Stream(&pool), spec, {.num_blocks = 4, .block_size = 16});
  EXPECT_EQ(storage.caches[0].raw_data(), storage.caches[1].raw_data());
  EXPECT_NE(storage.caches[0].raw_data(), storage.caches[2].raw_data());
  EXPECT_EQ(storage.caches[3].shape(), (Shape{4, 16, 4, 8}));
}

TEST(LayerStorage, TakesNoMemoryOnADryRun) {
  const LayerStorage storage = make_layer_storage(
      Stream::dry_run(), kSpec, {.num_blocks = 1 << 30, .block_size = 16, .num_slots = 1 << 30});
  EXPECT_FALSE(storage.caches[0].has_data());
  EXPECT_FALSE(storage.states[1].has_data());
}

TEST(LayerStorage, CopiesStatesOneAfterTheOther) {
  ThreadPool pool(1);
  const Stream stream(&pool);
  const StorageSpec spec = {.caches = {},
                            .states = {{"a", {1}, DType::kInt32}, {"b", {2}, DType::kInt32}}};
  const LayerStorage storage = make_layer_storage(stream, spec, {.num_slots = 4});
  for (const Tensor& states : storage.states) {
    for (int64_t i = 0; i < states.num_elements(); ++i) {
      states.data<int32_t>()[i] = static_cast<int32_t>(i);
    }
  }
  // Slot 2 is read before it is written.
  const StateCopy copies[] = {{.from = 2, .to = 0}, {.from = 1, .to = 2}};
  copy_states(stream, storage, copies);
  const int32_t* a = storage.states[0].data<int32_t>();
  const int32_t* b = storage.states[1].data<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(a, a + 4), (std::vector<int32_t>{2, 1, 1, 3}));
  EXPECT_EQ(std::vector<int32_t>(b, b + 8), (std::vector<int32_t>{4, 5, 2, 3, 2, 3, 6, 7}));
}

}  // namespace
}  // namespace atom
