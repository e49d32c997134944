#include "tokenizer/aho_corasick.h"

#include "base/check.h"

namespace atom {

AhoCorasick::AhoCorasick(const std::vector<std::string_view>& patterns) : nodes_(1) {
  for (size_t p = 0; p < patterns.size(); ++p) {
    CHECK(!patterns[p].empty());
    State state = kRoot;
    for (const char c : patterns[p]) {
      const auto byte = static_cast<uint8_t>(c);
      State to = state == kRoot ? root_next_[byte] : child(state, byte);
      if (to == kRoot) {
        to = static_cast<State>(nodes_.size());
        Node node;
        node.next_sibling = nodes_[state].first_child;
        node.depth = nodes_[state].depth + 1;
        node.byte = byte;
        nodes_.push_back(node);
        nodes_[state].first_child = to;
        if (state == kRoot) root_next_[byte] = to;
      }
      state = to;
    }
    if (nodes_[state].longest_match < 0) nodes_[state].longest_match = static_cast<int32_t>(p);
  }
  // Breadth first: the fail state of a node is shallower, so it is complete before the node.
  std::vector<State> queue;
  queue.reserve(nodes_.size());
  queue.push_back(kRoot);
  for (size_t i = 0; i < queue.size(); ++i) {
    const State state = queue[i];
    for (State to = nodes_[state].first_child; to != 0; to = nodes_[to].next_sibling) {
      if (state != kRoot) nodes_[to].fail = next(nodes_[state].fail, nodes_[to].byte);
      if (nodes_[to].longest_match < 0) {
        nodes_[to].longest_match = nodes_[nodes_[to].fail].longest_match;
      }
      queue.push_back(to);
    }
  }
}

AhoCorasick::State AhoCorasick::child(State state, uint8_t byte) const {
  State to = nodes_[state].first_child;
  while (to != 0 && nodes_[to].byte != byte) to = nodes_[to].next_sibling;
  return to;
}

AhoCorasick::State AhoCorasick::next_of_inner(State state, uint8_t byte) const {
  while (state != kRoot) {
    if (const State to = child(state, byte); to != 0) return to;
    state = nodes_[state].fail;
  }
  return root_next_[byte];
}

}  // namespace atom
