#include "flashinfer_pages.h"

#include "base/check.h"

namespace atom::bench {

FlashInferPages make_flashinfer_pages(const std::vector<int32_t>& block_tables,
                                      int64_t stride,
                                      const std::vector<int32_t>& seq_lens,
                                      int block_size,
                                      int num_blocks) {
  CHECK(block_tables.size() == seq_lens.size() * static_cast<size_t>(stride));
  FlashInferPages result;
  result.first_page.push_back(0);
  for (size_t s = 0; s < seq_lens.size(); ++s) {
    CHECK(seq_lens[s] > 0);
    const int num_pages = (seq_lens[s] + block_size - 1) / block_size;
    CHECK(num_pages <= stride);
    for (int i = 0; i < num_pages; ++i) {
      const int32_t block = block_tables[s * stride + i];
      CHECK(block >= 0);
      CHECK(block < num_blocks);
      result.pages.push_back(block);
    }
    result.first_page.push_back(static_cast<int32_t>(result.pages.size()));
    result.last_page_len.push_back(seq_lens[s] - (num_pages - 1) * block_size);
  }
  return result;
}

}  // namespace atom::bench
