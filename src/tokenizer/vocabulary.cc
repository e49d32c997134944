#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>

#include "tokenizer/hash.h"

namespace atom {

Vocabulary::Vocabulary() : slots_(16), seed_(hash_seed()) {}

std::string_view Vocabulary::content(int32_t id) const {
  if (!contains(id)) return {};
  return std::string_view(bytes_).substr(entries_[id].begin, entries_[id].size);
}

size_t Vocabulary::find_slot(std::string_view content, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const auto tag = static_cast<uint32_t>(hash >> 32);
  size_t slot = hash & mask;
  while (slots_[slot].id >= 0 &&
         (slots_[slot].tag != tag || this->content(slots_[slot].id) != content)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

int32_t Vocabulary::find(std::string_view content) const {
  return slots_[find_slot(content, hash_bytes(content, seed_))].id;
}

void Vocabulary::rehash(size_t num_slots) {
  slots_.assign(num_slots, {});
  for (int32_t id = 0; id < size(); ++id) {
    if (!contains(id)) continue;
    const uint64_t hash = hash_bytes(content(id), seed_);
    slots_[find_slot(content(id), hash)] = {static_cast<uint32_t>(hash >> 32), id};
  }
}

void Vocabulary::reserve(size_t num_entries, size_t num_bytes) {
  num_entries = std::min(num_entries, static_cast<size_t>(kMaxVocabularySize));
  bytes_.reserve(num_bytes);
  entries_.reserve(num_entries);
  const size_t num_slots = std::bit_ceil(2 * num_entries);
  if (num_slots > slots_.size()) rehash(num_slots);
}

Status Vocabulary::add(std::string_view content, int64_t id) {
  if (id < 0 || id >= kMaxVocabularySize) {
    return invalid_argument(
        "the id {} of token \"{}\" is outside [0, {})", id, content, kMaxVocabularySize);
  }
  if (contains(static_cast<int32_t>(id))) {
    return invalid_argument("the id {} is given to both \"{}\" and \"{}\"",
                            id,
                            this->content(static_cast<int32_t>(id)),
                            content);
  }
  if (bytes_.size() + content.size() > INT32_MAX) {
    return resource_exhausted("the vocabulary's strings are longer than 2 GiB together");
  }
  if (2 * (num_entries_ + 1) > slots_.size()) rehash(2 * slots_.size());
  const uint64_t hash = hash_bytes(content, seed_);
  const size_t slot = find_slot(content, hash);
  if (slots_[slot].id >= 0) {
    return invalid_argument(
        "the token \"{}\" is listed twice, with ids {} and {}", content, slots_[slot].id, id);
  }
  slots_[slot] = {static_cast<uint32_t>(hash >> 32), static_cast<int32_t>(id)};
  if (static_cast<size_t>(id) >= entries_.size()) entries_.resize(id + 1);
  entries_[id] = {static_cast<uint32_t>(bytes_.size()), static_cast<int32_t>(content.size())};
  bytes_.append(content);
  ++num_entries_;
  max_content_size_ = std::max(max_content_size_, content.size());
  return {};
}

}  // namespace atom
