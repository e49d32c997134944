// Finds many strings in one pass over the text, byte by byte, in linear time. Immutable once built.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace atom {

class AhoCorasick {
 public:
  // A pattern is known by its index. Patterns must not be empty; of equal ones the first is
  // reported.
  explicit AhoCorasick(const std::vector<std::string_view>& patterns);

  // A state is the longest suffix of the bytes so far that begins some pattern.
  using State = uint32_t;
  static constexpr State kRoot = 0;

  State next(State state, uint8_t byte) const {
    if (state == kRoot) return root_next_[byte];
    return next_of_inner(state, byte);
  }
  // True when `byte` leads from the root to the root.
  bool stays_at_root(uint8_t byte) const { return root_next_[byte] == kRoot; }
  // The longest pattern that ends in this state, or -1.
  int32_t longest_match(State state) const { return nodes_[state].longest_match; }
  // Length of the suffix that the state stands for.
  uint32_t depth(State state) const { return nodes_[state].depth; }

 private:
  struct Node {
    State first_child = 0;
    State next_sibling = 0;
    State fail = kRoot;
    uint32_t depth = 0;
    int32_t longest_match = -1;
    uint8_t byte = 0;
  };
  State child(State state, uint8_t byte) const;
  State next_of_inner(State state, uint8_t byte) const;

  std::vector<Node> nodes_;
  std::array<State, 256> root_next_{};
};

}  // namespace atom
