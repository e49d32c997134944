#include "flashinfer_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace atom::bench {
namespace {

// The arithmetic with which FlashInfer's kernels find a sequence's length and a token's place.
int length_of(const FlashInferPages& pages, int sequence, int page_size) {
  return (pages.first_page[sequence + 1] - pages.first_page[sequence] - 1) * page_size +
         pages.last_page_len[sequence];
}

int64_t slot_of(const FlashInferPages& pages, int sequence, int position, int page_size) {
  const int page = pages.pages[pages.first_page[sequence] + position / page_size];
  return int64_t{page} * page_size + position % page_size;
}

TEST(FlashInferPages, FindsEveryTokenWhereTheBlockTableHasIt) {
  std::mt19937 random(1);
  for (const int block_size : {1, 16, 48, 128}) {
    std::vector<int32_t> seq_lens;
    for (const int len : {1, block_size, block_size + 1, 3 * block_size - 1, 5 * block_size}) {
      seq_lens.push_back(std::max(1, len));
    }
    for (int i = 0; i < 20; ++i) {
      seq_lens.push_back(1 + static_cast<int>(random() % 700));
    }
    const int stride = (700 + block_size - 1) / block_size + 5;
    const int num_blocks = static_cast<int>(seq_lens.size()) * stride;
    std::vector<int32_t> blocks(num_blocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    std::vector<int32_t> tables = blocks;
    for (size_t s = 0; s < seq_lens.size(); ++s) {
      const int used = (seq_lens[s] + block_size - 1) / block_size;
      std::fill(tables.begin() + s * stride + used, tables.begin() + (s + 1) * stride, -1);
    }
    const FlashInferPages pages =
        make_flashinfer_pages(tables, stride, seq_lens, block_size, num_blocks);
    ASSERT_EQ(pages.first_page.size(), seq_lens.size() + 1);
    ASSERT_EQ(pages.first_page.back(), static_cast<int>(pages.pages.size()));
    for (size_t s = 0; s < seq_lens.size(); ++s) {
      ASSERT_EQ(length_of(pages, s, block_size), seq_lens[s]);
      ASSERT_GE(pages.last_page_len[s], 1);
      ASSERT_LE(pages.last_page_len[s], block_size);
      for (int position = 0; position < seq_lens[s]; ++position) {
        const int64_t block = blocks[s * stride + position / block_size];
        ASSERT_EQ(slot_of(pages, s, position, block_size),
                  block * block_size + position % block_size);
      }
    }
  }
}

TEST(FlashInferPagesDeathTest, RefusesWhatIsNotThere) {
  EXPECT_DEATH(make_flashinfer_pages({0, -1}, 2, {17}, 16, 4), "block >= 0");
  EXPECT_DEATH(make_flashinfer_pages({0, 4}, 2, {17}, 16, 4), "block < num_blocks");
  EXPECT_DEATH(make_flashinfer_pages({0, 1}, 2, {33}, 16, 4), "num_pages <= stride");
  EXPECT_DEATH(make_flashinfer_pages({0, 1}, 2, {0}, 16, 4), "seq_lens");
  EXPECT_DEATH(make_flashinfer_pages({0, 1}, 2, {1, 1}, 16, 4), "block_tables.size");
}

}  // namespace
}  // namespace atom::bench
