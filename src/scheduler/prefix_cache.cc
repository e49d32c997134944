#include "scheduler/prefix_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace atom {

namespace {

constexpr size_t kParentWords = sizeof(BlockHash) / sizeof(int32_t);

BlockHash hash_bytes(const void* data, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return {hash.low64, hash.high64};
}

}  // namespace

PrefixCache::PrefixCache(int32_t num_blocks, int32_t block_size)
    : block_size_(block_size),
      entries_(num_blocks),
      token_ids_(int64_t{num_blocks} * block_size),
      buckets_(std::bit_ceil(2 * static_cast<uint64_t>(num_blocks)), -1),
      bucket_mask_(buckets_.size() - 1),
      hash_input_(kParentWords + block_size) {}

BlockHash PrefixCache::hash_salt(const std::string& salt) {
  return hash_bytes(salt.data(), salt.size());
}

BlockHash PrefixCache::hash_block(const BlockHash& parent, std::span<const int32_t> token_ids) {
  CHECK(static_cast<int32_t>(token_ids.size()) == block_size_);
  std::memcpy(hash_input_.data(), &parent, sizeof(parent));
  std::ranges::copy(token_ids, hash_input_.begin() + kParentWords);
  return hash_bytes(hash_input_.data(), hash_input_.size() * sizeof(int32_t));
}

int32_t PrefixCache::find(const PrefixKey& key) const {
  for (int32_t block_id = buckets_[key.hash.low & bucket_mask_]; block_id >= 0;
       block_id = entries_[block_id].next_in_bucket) {
    const Entry& entry = entries_[block_id];
    if (entry.hash != key.hash) continue;
    const bool equal = entry.parent == key.parent &&
                       (key.parent != kRootContent || *entry.salt == *key.salt) &&
                       std::ranges::equal(token_ids(block_id), key.token_ids);
    return equal ? block_id : -1;
  }
  return -1;
}

ContentId PrefixCache::insert(int32_t block_id, const PrefixKey& key) {
  CHECK(!contains(block_id));
  int32_t& first = bucket(key.hash);
  for (int32_t other = first; other >= 0; other = entries_[other].next_in_bucket) {
    if (entries_[other].hash == key.hash) {
      erase(other);
      break;
    }
  }
  Entry& entry = entries_[block_id];
  entry.hash = key.hash;
  entry.content = next_content_++;
  entry.parent = key.parent;
  if (key.parent == kRootContent) entry.salt = key.salt;
  std::ranges::copy(key.token_ids, token_ids_.begin() + int64_t{block_id} * block_size_);
  entry.next_in_bucket = first;
  first = block_id;
  ++num_cached_;
  return entry.content;
}

void PrefixCache::erase(int32_t block_id) {
  CHECK(contains(block_id));
  Entry& entry = entries_[block_id];
  int32_t* link = &bucket(entry.hash);
  while (*link != block_id) link = &entries_[*link].next_in_bucket;
  *link = entry.next_in_bucket;
  entry = Entry();
  --num_cached_;
}

void PrefixCache::clear() {
  std::ranges::fill(entries_, Entry());
  std::ranges::fill(buckets_, -1);
  num_cached_ = 0;
}

}  // namespace atom
