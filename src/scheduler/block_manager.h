// The pool of KV blocks: who refers to each, which are free, and which still hold a prefix worth
// keeping. Block ids are [0, num_blocks).
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
#include <vector>

#include "config/scheduler_config.h"
#include "scheduler/prefix_cache.h"
#include "scheduler/sequence.h"

namespace atom {

class BlockManager {
 public:
  explicit BlockManager(const SchedulerConfig& config);

  int32_t num_blocks_for(int64_t num_tokens) const {
    return static_cast<int32_t>(atom::num_blocks_for(num_tokens, block_size_));
  }

  // The contents of the registered blocks that hold the longest known prefix of the sequence's
  // known tokens, never the last token, which has to be computed.
  std::vector<ContentId> find_prefix(Sequence& sequence);
  // Gives a sequence without blocks these blocks, at most `max_blocks`. Returns the tokens covered.
  int32_t acquire_prefix(Sequence& sequence, int32_t max_blocks = INT32_MAX);

  // Whether the sequence can grow to hold num_tokens while num_reserved blocks stay free.
  bool can_append(const Sequence& sequence, int32_t num_tokens, int32_t num_reserved = 0) const;

  // Grows the table to hold num_tokens; what it adds is also appended to new_block_ids.
  void append(Sequence& sequence, int32_t num_tokens, std::vector<int32_t>& new_block_ids);

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
  int32_t max_prefix_blocks(const Sequence& sequence) const {
    return enable_prefix_caching_ ? (sequence.num_known_tokens() - 1) / block_size_ : 0;
  }
  PrefixKey key_of(const Sequence& sequence, int32_t index, ContentId parent) const;

  const int32_t block_size_;
  const bool enable_prefix_caching_;
  PrefixCache cache_;
  std::vector<Block> blocks_;  // and one sentinel: its next is handed out first
  int32_t num_free_ = 0;
  int64_t num_query_tokens_ = 0;
  int64_t num_hit_tokens_ = 0;
  uint64_t num_releases_ = 0;
};

}  // namespace atom
