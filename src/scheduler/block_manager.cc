#include "scheduler/block_manager.h"

#include <algorithm>

#include "base/check.h"

namespace atom {

BlockManager::BlockManager(const SchedulerConfig& config)
    : config_(config),
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

int32_t BlockManager::num_usable(const Sequence& sequence,
                                 std::span<const ContentId> contents,
                                 int32_t num_blocks) const {
  if (num_groups() == 1) return num_blocks;
  int32_t i = num_blocks;  // blocks [i, num_blocks) are there
  while (i > config_.num_blocks_behind(num_blocks * config_.block_size)) {
    --i;
    // Prefixes that end behind a block that is missing need it, too, until their window is past it.
    if (cache_.find(key_beside(sequence, i, contents[i])) < 0) num_blocks = i;
  }
  return num_blocks;
}

int32_t BlockManager::acquire_prefix(Sequence& sequence,
                                     std::span<const ContentId> contents,
                                     int32_t num_blocks) {
  BlockTable& table = sequence.block_table;
  CHECK(table.block_ids.empty());
  const int32_t num_tokens = num_blocks * config_.block_size;
  table.num_behind = config_.num_blocks_behind(num_tokens);
  for (int32_t i = 0; i < num_blocks; ++i) {
    const bool is_behind = i < table.num_behind;
    if (num_groups() > 1 || !is_behind) {
      refer(sequence, cache_.find(key_of(sequence, i, table.content)));
    }
    table.content = contents[i];
    if (is_behind) {
      table.block_ids.push_back(-1);
    } else if (num_groups() > 1) {
      refer(sequence, cache_.find(key_beside(sequence, i, contents[i])));
    }
  }
  table.num_registered = num_blocks;
  return num_tokens;
}

int32_t BlockManager::acquire_prefix(Sequence& sequence) {
  const std::vector<ContentId> contents = find_prefix(sequence);
  const auto num_found = static_cast<int32_t>(contents.size());
  return acquire_prefix(sequence, contents, num_usable(sequence, contents, num_found));
}

bool BlockManager::can_start(const Sequence& sequence,
                             int32_t num_tokens,
                             int32_t num_reserved) const {
  const BlockTable& table = sequence.block_table;
  const int64_t num_held = std::ssize(table.block_ids) - table.num_behind;
  return config_.max_blocks_of_sequence(num_tokens) - num_held +
             int64_t{num_groups()} * num_reserved <=
         num_free_;
}

bool BlockManager::can_append(const Sequence& sequence, int32_t num_tokens) const {
  const int64_t num_needed = num_groups() * num_blocks_for(num_tokens, config_.block_size);
  return num_needed - std::ssize(sequence.block_table.block_ids) <= num_free_;
}

void BlockManager::append(Sequence& sequence,
                          int32_t num_tokens,
                          std::vector<int32_t>& new_block_ids) {
  std::vector<int32_t>& block_ids = sequence.block_table.block_ids;
  const int64_t num_needed = num_groups() * num_blocks_for(num_tokens, config_.block_size);
  while (std::ssize(block_ids) < num_needed) {
    const int32_t block_id = take_free_block();
    block_ids.push_back(block_id);
    new_block_ids.push_back(block_id);
  }
}

void BlockManager::register_blocks(Sequence& sequence, int32_t num_tokens) {
  if (!config_.enable_prefix_caching) return;
  BlockTable& table = sequence.block_table;
  const int32_t num_full = num_tokens / config_.block_size;
  if (table.num_registered >= num_full) return;
  extend_hash_chain(sequence, num_full);
  for (int32_t i = table.num_registered; i < num_full; ++i) {
    const PrefixKey key = key_of(sequence, i, table.content);
    // Two sequences may compute the same content side by side; the first keeps the name.
    const int32_t holder = cache_.find(key);
    const int32_t* ids = &table.block_ids[size_t(i) * num_groups()];
    table.content = holder >= 0 ? cache_.content(holder) : cache_.insert(ids[0], key);
    if (num_groups() == 1) continue;
    const PrefixKey beside = key_beside(sequence, i, table.content);
    if (cache_.find(beside) < 0) cache_.insert(ids[1], beside);
  }
  table.num_registered = num_full;
}

void BlockManager::free_behind_window(Sequence& sequence) {
  if (config_.kv_window == 0) return;
  BlockTable& table = sequence.block_table;
  int32_t end = config_.num_blocks_behind(sequence.num_computed_tokens());
  if (config_.enable_prefix_caching) end = std::min(end, table.num_registered);
  for (; table.num_behind < end; ++table.num_behind) {
    int32_t& block_id = table.block_ids[size_t(table.num_behind + 1) * num_groups() - 1];
    release(block_id);
    block_id = -1;
  }
}

void BlockManager::free(Sequence& sequence) {
  BlockTable& table = sequence.block_table;
  // From the tail, so that the tail of a prefix is handed out again before its head.
  for (size_t i = table.block_ids.size(); i-- > 0;) {
    if (table.block_ids[i] >= 0) release(table.block_ids[i]);
  }
  table.block_ids.clear();
  table.num_behind = 0;
  table.num_registered = 0;
  table.content = kRootContent;
  ++num_releases_;
}

void BlockManager::refer(Sequence& sequence, int32_t block_id) {
  CHECK(block_id >= 0);
  if (blocks_[block_id].ref_count++ == 0) unlink(block_id);
  sequence.block_table.block_ids.push_back(block_id);
}

void BlockManager::release(int32_t block_id) {
  CHECK(blocks_[block_id].ref_count > 0);
  if (--blocks_[block_id].ref_count > 0) return;
  link_after(block_id, cache_.contains(block_id) ? blocks_[sentinel()].previous : sentinel());
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
    chain.push_back(
        cache_.hash_block(parent, tokens_of(sequence, static_cast<int32_t>(chain.size()))));
  }
}

std::span<const int32_t> BlockManager::tokens_of(const Sequence& sequence, int32_t index) const {
  return sequence.token_ids().subspan(size_t(index) * config_.block_size, config_.block_size);
}

PrefixKey BlockManager::key_of(const Sequence& sequence, int32_t index, ContentId parent) const {
  return {.hash = sequence.block_table.hash_chain[index],
          .parent = parent,
          .salt = sequence.cache_salt(),
          .token_ids = tokens_of(sequence, index)};
}

PrefixKey BlockManager::key_beside(const Sequence& sequence,
                                   int32_t index,
                                   ContentId content) const {
  PrefixKey key = key_of(sequence, index, content);
  key.hash.high = ~key.hash.high;
  return key;
}

}  // namespace atom
