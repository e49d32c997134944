// The pool of KV blocks: who refers to each, which are free, and which still hold a prefix worth
// keeping. Block ids are [0, num_blocks). A block has the keys and values of block_size tokens in
// the layers of one group (SchedulerConfig::num_kv_groups), so that a sequence has as many for
// these tokens as there are groups; of a group with a window those only that the next token sees.
//
// The first group's blocks name contents: a block of another group is known under the content of
// the first group's block of the same tokens. So a prefix is hit up to a place where the first
// group has all blocks, or had them when they were needed, and every other those within its window.
//
// Invariants:
//  - a block's reference count is the number of block tables it is in; it is on the free list
//    exactly when the count is 0;
//  - a block in more than one table was registered in the prefix cache: it is full, and nobody
//    writes it any more;
//  - a free block keeps its content until it is handed out again. Free blocks without content are
//    handed out first, then the least recently used, the tail of a prefix before its head.
// Handing a block over at once is sound because the device executes steps in the order in which
// they were scheduled: whoever gets the block writes it in a later step.
//
// Owned by the thread that runs the Scheduler.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/scheduler_config.h"
#include "scheduler/prefix_cache.h"
#include "scheduler/sequence.h"

namespace atom {

class BlockManager {
 public:
  explicit BlockManager(const SchedulerConfig& config);

  // The contents of the first group's registered blocks that hold the longest known prefix of the
  // sequence's known tokens, never the last token, which has to be computed.
  std::vector<ContentId> find_prefix(Sequence& sequence);
  // The longest part of that prefix, of at most `num_blocks` blocks, behind which a sequence can go
  // on: within the window all blocks are there.
  int32_t num_usable(const Sequence& sequence,
                     std::span<const ContentId> contents,
                     int32_t num_blocks) const;
  // Gives a sequence without blocks the first `num_blocks` of that prefix, a usable number of them,
  // but for those behind the window. Returns the tokens covered.
  int32_t acquire_prefix(Sequence& sequence,
                         std::span<const ContentId> contents,
                         int32_t num_blocks);
  // The longest usable part.
  int32_t acquire_prefix(Sequence& sequence);

  // Whether a sequence can go on, step by step, until it has num_tokens, while room for
  // num_reserved blocks of tokens stays free.
  bool can_start(const Sequence& sequence, int32_t num_tokens, int32_t num_reserved) const;
  // Whether the sequence can grow to hold num_tokens by one step.
  bool can_append(const Sequence& sequence, int32_t num_tokens) const;

  // Grows the table to hold num_tokens; what it adds is also appended to new_block_ids.
  void append(Sequence& sequence, int32_t num_tokens, std::vector<int32_t>& new_block_ids);

  // Gives back the blocks that lie wholly behind the window of the next token to compute, as far as
  // they were registered. No step that is scheduled from now on reads them; whoever gets them
  // writes them in such a step, which must not be one that is being made and that the sequence has
  // a part in already.
  void free_behind_window(Sequence& sequence);

  // Registers the full blocks among the first num_tokens, which are known and scheduled.
  void register_blocks(Sequence& sequence, int32_t num_tokens);

  // Drops all the sequence's references.
  void free(Sequence& sequence);

  // Counts a request that asked the prefix cache.
  void count_query(int32_t num_query_tokens, int32_t num_hit_tokens);

  // Frees every block and forgets every content. No sequence may use its block table afterwards.
  void reset();

  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()) - 1; }
  int32_t num_free() const { return num_free_; }  // cached but unreferenced blocks included
  int32_t num_cached() const { return cache_.num_cached(); }
  int64_t num_query_tokens() const { return num_query_tokens_; }
  int64_t num_hit_tokens() const { return num_hit_tokens_; }
  uint64_t num_releases() const { return num_releases_; }  // tables freed so far
  int32_t ref_count(int32_t block_id) const { return blocks_[block_id].ref_count; }
  bool is_cached(int32_t block_id) const { return cache_.contains(block_id); }

 private:
  struct Block {
    int32_t ref_count = 0;
    int32_t previous = 0;  // on the free list
    int32_t next = 0;
  };

  int32_t sentinel() const { return num_blocks(); }
  void link_after(int32_t block_id, int32_t position);
  void unlink(int32_t block_id);
  void link_all();
  int32_t take_free_block();
  void extend_hash_chain(Sequence& sequence, int32_t num_blocks);
  int32_t num_groups() const { return config_.num_kv_groups; }
  int32_t max_prefix_blocks(const Sequence& sequence) const {
    const int32_t num_known = sequence.num_known_tokens();
    return config_.enable_prefix_caching ? (num_known - 1) / config_.block_size : 0;
  }
  std::span<const int32_t> tokens_of(const Sequence& sequence, int32_t index) const;
  // The key of a block of the first group, behind the content `parent`.
  PrefixKey key_of(const Sequence& sequence, int32_t index, ContentId parent) const;
  // The key in the second group, beside the content of the first group's block of the same tokens.
  PrefixKey key_beside(const Sequence& sequence, int32_t index, ContentId content) const;
  void refer(Sequence& sequence, int32_t block_id);
  void release(int32_t block_id);

  const SchedulerConfig config_;
  PrefixCache cache_;
  std::vector<Block> blocks_;  // and one sentinel: its next is handed out first
  int32_t num_free_ = 0;
  int64_t num_query_tokens_ = 0;
  int64_t num_hit_tokens_ = 0;
  uint64_t num_releases_ = 0;
};

}  // namespace atom
