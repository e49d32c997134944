// The index of full KV blocks by what they hold, so that a prompt that starts with tokens already
// in the pool need not compute them again. It knows contents only; who refers to a block and which
// blocks are free is the BlockManager's business.
//
// A block's key is a hash chain: xxh3-128 over the parent block's hash and its own token ids, the
// chain starting from the hash of the cache salt. xxh3 is no cryptographic hash and prompts are
// hostile, so a hit is believed only when the token ids are equal, the parent is the very content
// that was matched before it, and, for a first block, the salt is equal: by induction the whole
// prefix is.
//
// Owned by the thread that runs the Scheduler. Allocates at construction only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace atom {

struct BlockHash {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const BlockHash&) const = default;
};

// Names what one registered block held; never reused. 0 is the root of every chain.
using ContentId = uint64_t;
inline constexpr ContentId kRootContent = 0;

using CacheSalt = std::shared_ptr<const std::string>;

struct PrefixKey {
  BlockHash hash;
  ContentId parent = kRootContent;
  const CacheSalt& salt;               // never null; looked at only where parent is the root
  std::span<const int32_t> token_ids;  // [block_size]
};

class PrefixCache {
 public:
  PrefixCache(int32_t num_blocks, int32_t block_size);

  static BlockHash hash_salt(const std::string& salt);
  BlockHash hash_block(const BlockHash& parent, std::span<const int32_t> token_ids);

  // The block that holds exactly this content, or -1.
  int32_t find(const PrefixKey& key) const;

  // Registers a block that is not registered. A block of the same hash and other content loses its
  // place. Returns the new content's id.
  ContentId insert(int32_t block_id, const PrefixKey& key);

  // Forgets the content of a registered block.
  void erase(int32_t block_id);

  void clear();

  bool contains(int32_t block_id) const { return entries_[block_id].content != kRootContent; }
  ContentId content(int32_t block_id) const { return entries_[block_id].content; }
  int32_t num_cached() const { return num_cached_; }

 private:
  struct Entry {
    BlockHash hash;
    ContentId content = kRootContent;  // kRootContent: not registered
    ContentId parent = kRootContent;
    int32_t next_in_bucket = -1;
    CacheSalt salt;  // of a first block only
  };

  int32_t& bucket(const BlockHash& hash) { return buckets_[hash.low & bucket_mask_]; }
  std::span<const int32_t> token_ids(int32_t block_id) const {
    return {token_ids_.data() + int64_t{block_id} * block_size_, static_cast<size_t>(block_size_)};
  }

  const int32_t block_size_;
  std::vector<Entry> entries_;      // [num_blocks]
  std::vector<int32_t> token_ids_;  // [num_blocks, block_size]
  std::vector<int32_t> buckets_;    // first block of each bucket, or -1; a power of two
  uint64_t bucket_mask_ = 0;
  std::vector<int32_t> hash_input_;  // parent hash (4 words), then the block's token ids
  ContentId next_content_ = kRootContent + 1;
  int32_t num_cached_ = 0;
};

}  // namespace atom
