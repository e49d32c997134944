#include "scheduler/block_manager.h"

#include <algorithm>

#include "base/check.h"

namespace atom {

BlockManager::BlockManager(const SchedulerConfig& config)
    : block_size_(config.block_size),
      enable_prefix_caching_(config.enable_prefix_caching),
      cache_(config.num_blocks, config.block_size),
      blocks_(config.num_blocks + 1) {
  link_all();
}

std::vector<ContentId> BlockManager::find_prefix(Sequence& sequence) {
  const int32_t max_hits = max_prefix_blocks(sequence);
  extend_hash_chain(sequence, max_hits);
  std::vector<ContentId> contents;
  ContentId parent = kRootContent;
  for (int32_t i = 0; i < max_hits; ++i) {
    const int32_t block_id = cache_.find(key_of(sequence, i, parent));
    if (block_id < 0) break;
    parent = cache_.content(block_id);
    contents.push_back(parent);
  }
  return contents;
}

int32_t BlockManager::acquire_prefix(Sequence& sequence, int32_t max_blocks) {
  BlockTable& table = sequence.block_table;
  CHECK(table.block_ids.empty());
  const int32_t max_hits = std::min(max_blocks, max_prefix_blocks(sequence));
  extend_hash_chain(sequence, max_hits);
  for (int32_t i = 0; i < max_hits; ++i) {
    const int32_t block_id = cache_.find(key_of(sequence, i, table.content));
    if (block_id < 0) break;
    if (blocks_[block_id].ref_count++ == 0) unlink(block_id);
    table.block_ids.push_back(block_id);
    table.content = cache_.content(block_id);
  }
  table.num_registered = static_cast<int32_t>(table.block_ids.size());
  return table.num_registered * block_size_;
}

bool BlockManager::can_append(const Sequence& sequence,
                              int32_t num_tokens,
                              int32_t num_reserved) const {
  const auto num_held = static_cast<int32_t>(sequence.block_table.block_ids.size());
  return num_blocks_for(num_tokens) - num_held + num_reserved <= num_free_;
}

void BlockManager::append(Sequence& sequence,
                          int32_t num_tokens,
                          std::vector<int32_t>& new_block_ids) {
  std::vector<int32_t>& block_ids = sequence.block_table.block_ids;
  const int32_t num_needed = num_blocks_for(num_tokens);
  while (static_cast<int32_t>(block_ids.size()) < num_needed) {
    const int32_t block_id = take_free_block();
    block_ids.push_back(block_id);
    new_block_ids.push_back(block_id);
  }
}

void BlockManager::register_blocks(Sequence& sequence, int32_t num_tokens) {
  if (!enable_prefix_caching_) return;
  BlockTable& table = sequence.block_table;
  const int32_t num_full = num_tokens / block_size_;
  if (table.num_registered >= num_full) return;
  extend_hash_chain(sequence, num_full);
  for (int32_t i = table.num_registered; i < num_full; ++i) {
    const PrefixKey key = key_of(sequence, i, table.content);
    // Two sequences may compute the same content side by side; the first keeps the name.
    const int32_t holder = cache_.find(key);
    table.content = holder >= 0 ? cache_.content(holder) : cache_.insert(table.block_ids[i], key);
  }
  table.num_registered = num_full;
}

void BlockManager::free(Sequence& sequence) {
  BlockTable& table = sequence.block_table;
  // From the tail, so that the tail of a prefix is handed out again before its head.
  for (size_t i = table.block_ids.size(); i-- > 0;) {
    const int32_t block_id = table.block_ids[i];
    CHECK(blocks_[block_id].ref_count > 0);
    if (--blocks_[block_id].ref_count > 0) continue;
    link_after(block_id, cache_.contains(block_id) ? blocks_[sentinel()].previous : sentinel());
  }
  table.block_ids.clear();
  table.num_registered = 0;
  table.content = kRootContent;
  ++num_releases_;
}

void BlockManager::count_query(int32_t num_query_tokens, int32_t num_hit_tokens) {
  num_query_tokens_ += num_query_tokens;
  num_hit_tokens_ += num_hit_tokens;
}

void BlockManager::reset() {
  cache_.clear();
  link_all();
  ++num_releases_;
}

void BlockManager::link_after(int32_t block_id, int32_t position) {
  Block& block = blocks_[block_id];
  block.previous = position;
  block.next = blocks_[position].next;
  blocks_[block.next].previous = block_id;
  blocks_[position].next = block_id;
  ++num_free_;
}

void BlockManager::unlink(int32_t block_id) {
  const Block& block = blocks_[block_id];
  blocks_[block.previous].next = block.next;
  blocks_[block.next].previous = block.previous;
  --num_free_;
}

void BlockManager::link_all() {
  num_free_ = 0;
  blocks_[sentinel()] = {.ref_count = 0, .previous = sentinel(), .next = sentinel()};
  for (int32_t block_id = 0; block_id < num_blocks(); ++block_id) {
    blocks_[block_id].ref_count = 0;
    link_after(block_id, blocks_[sentinel()].previous);
  }
}

int32_t BlockManager::take_free_block() {
  CHECK(num_free_ > 0);
  const int32_t block_id = blocks_[sentinel()].next;
  CHECK(blocks_[block_id].ref_count == 0);
  unlink(block_id);
  if (cache_.contains(block_id)) cache_.erase(block_id);
  blocks_[block_id].ref_count = 1;
  return block_id;
}

void BlockManager::extend_hash_chain(Sequence& sequence, int32_t num_blocks) {
  std::vector<BlockHash>& chain = sequence.block_table.hash_chain;
  while (static_cast<int32_t>(chain.size()) < num_blocks) {
    const BlockHash parent =
        chain.empty() ? PrefixCache::hash_salt(*sequence.cache_salt()) : chain.back();
    chain.push_back(cache_.hash_block(
        parent, sequence.token_ids().subspan(chain.size() * block_size_, block_size_)));
  }
}

PrefixKey BlockManager::key_of(const Sequence& sequence, int32_t index, ContentId parent) const {
  return {.hash = sequence.block_table.hash_chain[index],
          .parent = parent,
          .salt = sequence.cache_salt(),
          .token_ids = sequence.token_ids().subspan(size_t(index) * block_size_, block_size_)};
}

}  // namespace atom
