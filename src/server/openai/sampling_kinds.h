// How requests give the sampling parameters: the kind of field that reads what a rule allows.
#pragma once

#include "config/sampling_rules.h"
#include "server/openai/list_kind.h"
#include "server/openai/request_kinds.h"

namespace atom::server {

inline NumberKind field_kind(const NumberRange& range) {
  return {range.min, range.max, range.excludes_min};
}
inline IntKind<int32_t> field_kind(const IntegerRange& range) {
  return {range.min, range.max};
}
inline BoolKind field_kind(const AnyBool&) {
  return {};
}
inline IntKind<int64_t> field_kind(const AnySeed&) {
  return {};
}
inline StringKind field_kind(const Text& text) {
  return {.min_length = 1, .max_length = text.max_characters};
}
inline TextListKind field_kind(const TextList& list) {
  return {list.max_count, list.max_characters};
}
inline ListKind<TokenIdKind> field_kind(const TokenIdList& list) {
  return {{}, "token ids", 0, list.max_count};
}
inline ListKind<ListKind<TokenIdKind>> field_kind(const TokenSequences& sequences) {
  return {{{}, "token ids", 1, sequences.max_length}, "lists of token ids", 0, sequences.max_count};
}
inline LogitBiasKind field_kind(const TokenBiases& biases) {
  return {biases.max_count, {-biases.max_bias, biases.max_bias}};
}

}  // namespace atom::server
