#include "base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.h"

namespace atom {
namespace {

// A document takes at most so many bytes of memory for each byte of its text, and some more so that
// a short one may be of any kind. [5,6,...] takes 16; {"a":1,...}, of sorted keys, 16.
constexpr size_t kMaxMemoryPerByte = 20;
constexpr size_t kFreeMemory = 1 << 20;

// Members of the outermost object that need no more room: a kilobyte, of kFreeMemory.
constexpr size_t kOutermostRoom = 16;

constexpr size_t kUsualDepth = 8;

// What the allocator adds to a block.
constexpr size_t kBlock = 16;

// Bytes that a string takes beside itself.
size_t text_memory(const std::string& text) {
  return text.size() < 16 ? 0 : text.size() + kBlock;
}

// Builds a document from SAX events and stops at the first limit passed, so that memory and time
// are bounded by the limits and not by the text.
template <typename J>
class BoundedBuilder : public nlohmann::json_sax<J> {
 public:
  BoundedBuilder(const JsonLimits& limits, size_t text_size)
      : limits_(limits), memory_left_(kFreeMemory + kMaxMemoryPerByte * text_size) {
    stack_.reserve(kUsualDepth);
  }

  J take() { return std::move(root_); }
  const std::string& error() const { return error_; }

  bool null() override { return add(J()); }
  bool boolean(bool value) override { return add(J(value)); }
  bool number_integer(typename J::number_integer_t value) override { return add(J(value)); }
  bool number_unsigned(typename J::number_unsigned_t value) override { return add(J(value)); }
  bool number_float(typename J::number_float_t value, const std::string&) override {
    return add(J(value));
  }
  bool string(std::string& value) override {
    return take_memory(sizeof(std::string) + kBlock + text_memory(value)) &&
           add(J(std::move(value)));
  }
  bool binary(typename J::binary_t&) override { return fail("binary values are not JSON"); }
  bool start_object(size_t) override { return open(nlohmann::detail::value_t::object); }
  bool start_array(size_t) override { return open(nlohmann::detail::value_t::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& value) override {
    if (!count_node()) return false;
    Frame& frame = stack_.back();
    if (frame.value.size() >= limits_.max_keys_per_object) {
      return fail(fmt::format("an object has more than {} keys", limits_.max_keys_per_object));
    }
    if (!take_memory(kMemberSize + text_memory(value))) return false;
    frame.pending_key = std::move(value);
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    const std::string_view text = e.what();
    const size_t prefix = text.find("] ");
    error_ = std::string(prefix == std::string_view::npos ? text : text.substr(prefix + 2));
    return false;
  }

 private:
  struct Frame {
    J value;
    std::string pending_key;
  };
  static constexpr bool kIsOrdered = std::is_same_v<J, OrderedJson>;
  // A member of an object: of a vector, which grows by doubling, or a node of a map.
  static constexpr size_t kMemberSize = kIsOrdered ? 2 * (sizeof(std::string) + sizeof(J))
                                                   : 3 * kBlock + sizeof(std::string) + sizeof(J);

  bool fail(std::string message) {
    error_ = std::move(message);
    return false;
  }

  bool count_node() {
    if (++num_nodes_ <= limits_.max_nodes) return true;
    return fail(fmt::format("more than {} values", limits_.max_nodes));
  }

  bool take_memory(size_t bytes) {
    if (bytes > memory_left_) {
      return fail(fmt::format("its values need more than {} bytes of memory for each of its own",
                              kMaxMemoryPerByte));
    }
    memory_left_ -= bytes;
    return true;
  }

  bool open(nlohmann::detail::value_t type) {
    if (!count_node() || !take_memory(sizeof(std::vector<J>) + kBlock)) return false;
    if (stack_.size() >= static_cast<size_t>(limits_.max_depth)) {
      return fail(fmt::format("nested deeper than {} levels", limits_.max_depth));
    }
    stack_.push_back({J(type), {}});
    return true;
  }

  bool close() {
    J finished = std::move(stack_.back().value);
    stack_.pop_back();
    if constexpr (kIsOrdered) {
      if (finished.is_object() && !check_keys(finished)) return false;
    }
    return place(std::move(finished));
  }

  // Compares keys: clients choose them, and could choose such as collide in a table of hashes.
  bool check_keys(const J& object) {
    const auto& members = object.template get_ref<const typename J::object_t&>();
    if (members.size() < 2) return true;
    std::vector<std::string_view> keys;
    keys.reserve(members.size());
    for (const auto& [key, value] : members) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    return twice == keys.end() || fail(fmt::format("duplicate key '{}'", *twice));
  }

  bool add(J&& value) { return count_node() && place(std::move(value)); }

  bool place(J&& value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Frame& parent = stack_.back();
    if (parent.value.is_array()) {
      if (!take_memory(2 * sizeof(J))) return false;  // the array grows by doubling
      parent.value.push_back(std::move(value));
    } else if constexpr (kIsOrdered) {
      // Appended without the linear search of ordered_map::emplace; check_keys() comes at the end.
      using Members = typename J::object_t::Container;
      Members& members = parent.value.template get_ref<typename J::object_t&>();
      if (members.size() == members.capacity()) {
        make_room(stack_.size() == 1 ? kOutermostRoom : 1, &members);
      }
      members.emplace_back(std::move(parent.pending_key), std::move(value));
    } else {
      auto& object = parent.value.template get_ref<typename J::object_t&>();
      const auto [place, is_new] =
          object.try_emplace(std::move(parent.pending_key), std::move(value));
      if (!is_new) return fail(fmt::format("duplicate key '{}'", place->first));
    }
    return true;
  }

  // Doubles the room as a vector would, which would copy members, since their keys are const.
  template <typename Members>
  static void make_room(size_t at_least, Members* members) {
    Members larger;
    larger.reserve(std::max(at_least, 2 * members->size()));
    for (auto& [key, value] : *members) larger.emplace_back(key, std::move(value));
    members->swap(larger);
  }

  const JsonLimits& limits_;
  J root_;
  std::vector<Frame> stack_;
  size_t num_nodes_ = 0;
  size_t memory_left_;
  std::string error_;
};

template <typename J>
Result<J> parse(std::string_view text, std::string_view where, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return invalid_argument(
        "{}: JSON of {} bytes is over the limit of {}", where, text.size(), limits.max_bytes);
  }
  BoundedBuilder<J> builder(limits, text.size());
  // J::sax_parse() has readers of four binary formats compiled too, which takes longer than the
  // rest.
  auto input = nlohmann::detail::input_adapter(text.begin(), text.end());
  nlohmann::detail::parser<J, decltype(input)> parser(std::move(input));
  if (!parser.sax_parse(&builder)) {
    return invalid_argument("{}: invalid JSON: {}", where, builder.error());
  }
  return builder.take();
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  return parse<Json>(text, where, limits);
}

Result<OrderedJson> parse_ordered_json(std::string_view text,
                                       std::string_view where,
                                       const JsonLimits& limits) {
  return parse<OrderedJson>(text, where, limits);
}

Result<Json> read_json_file(const std::string& path, const JsonLimits& limits) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, limits.max_bytes));
  return parse_json(text, path, limits);
}

}  // namespace atom
