// Block tables as FlashInfer takes them: the blocks ("pages") of all sequences in one array.
#pragma once

#include <cstdint>
#include <vector>

namespace atom::bench {

struct FlashInferPages {
  std::vector<int32_t> first_page;     // [num_sequences + 1]: places in `pages`
  std::vector<int32_t> pages;          // [first_page.back()]: blocks of the cache
  std::vector<int32_t> last_page_len;  // [num_sequences]: tokens in the last one, 1 to block_size
};

// `block_tables` [num_sequences, stride] as AttentionParams has them; every sequence has a token.
FlashInferPages make_flashinfer_pages(const std::vector<int32_t>& block_tables,
                                      int64_t stride,
                                      const std::vector<int32_t>& seq_lens,
                                      int block_size,
                                      int num_blocks);

}  // namespace atom::bench
