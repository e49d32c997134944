#include "base/json.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "base/file.h"

namespace atom {
namespace {

// Builds a document from SAX events and stops at the first limit passed, so that memory and time
// are bounded by the limits and not by the text.
template <typename J>
class BoundedBuilder : public nlohmann::json_sax<J> {
 public:
  explicit BoundedBuilder(const JsonLimits& limits) : limits_(limits) {}

  J take() { return std::move(root_); }
  const std::string& error() const { return error_; }

  bool null() override { return add(J(nullptr)); }
  bool boolean(bool value) override { return add(J(value)); }
  bool number_integer(typename J::number_integer_t value) override { return add(J(value)); }
  bool number_unsigned(typename J::number_unsigned_t value) override { return add(J(value)); }
  bool number_float(typename J::number_float_t value, const std::string&) override {
    return add(J(value));
  }
  bool string(std::string& value) override { return add(J(std::move(value))); }
  bool binary(typename J::binary_t&) override { return fail("binary values are not JSON"); }
  bool start_object(size_t) override { return open(J::object()); }
  bool start_array(size_t) override { return open(J::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& value) override {
    if (!count_node()) return false;
    Frame& frame = stack_.back();
    if (frame.keys.size() >= limits_.max_keys_per_object) {
      return fail(fmt::format("an object has more than {} keys", limits_.max_keys_per_object));
    }
    if (!frame.keys.insert(value).second) return fail(fmt::format("duplicate key '{}'", value));
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
    std::unordered_set<std::string> keys;
  };

  bool fail(std::string message) {
    error_ = std::move(message);
    return false;
  }

  bool count_node() {
    if (++num_nodes_ <= limits_.max_nodes) return true;
    return fail(fmt::format("more than {} values", limits_.max_nodes));
  }

  bool open(J container) {
    if (!count_node()) return false;
    if (stack_.size() >= static_cast<size_t>(limits_.max_depth)) {
      return fail(fmt::format("nested deeper than {} levels", limits_.max_depth));
    }
    stack_.push_back({std::move(container), {}, {}});
    return true;
  }

  bool close() {
    J finished = std::move(stack_.back().value);
    stack_.pop_back();
    place(std::move(finished));
    return true;
  }

  bool add(J value) {
    if (!count_node()) return false;
    place(std::move(value));
    return true;
  }

  void place(J value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return;
    }
    Frame& parent = stack_.back();
    if (parent.value.is_array()) {
      parent.value.push_back(std::move(value));
    } else if constexpr (std::is_same_v<J, OrderedJson>) {
      // Keys are known to be new: append without the linear search of ordered_map::emplace.
      auto& object = parent.value.template get_ref<typename J::object_t&>();
      static_cast<typename J::object_t::Container&>(object).emplace_back(
          std::move(parent.pending_key), std::move(value));
    } else {
      parent.value[std::move(parent.pending_key)] = std::move(value);
    }
  }

  const JsonLimits& limits_;
  J root_;
  std::vector<Frame> stack_;
  size_t num_nodes_ = 0;
  std::string error_;
};

template <typename J>
Result<J> parse(std::string_view text, std::string_view where, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return invalid_argument(
        "{}: JSON of {} bytes is over the limit of {}", where, text.size(), limits.max_bytes);
  }
  BoundedBuilder<J> builder(limits);
  if (!J::sax_parse(text.begin(), text.end(), &builder)) {
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
