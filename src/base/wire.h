// Fixed-schema binary encoding of messages between threads, processes and machines: little
// endian, no type tags, every count capped. A reader never trusts a length: it fails once and stays
// failed, and allocates no more than the bytes it was given can hold.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace atom {

class WireWriter {
 public:
  // `expected_size` bytes are set aside at once.
  explicit WireWriter(size_t expected_size = 256) : bytes_(expected_size) {}

  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void write(T value) { append(&value, sizeof(T)); }

  void write(const std::string& text) { write_span(std::span<const char>(text)); }

  template <typename T>
  void write_span(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    write(static_cast<uint32_t>(values.size()));
    append(values.data(), values.size_bytes());
  }

  template <typename T>
  void write_optional(const std::optional<T>& value) {
    write(static_cast<uint8_t>(value.has_value()));
    if (value) write(*value);
  }

  // A count, to be followed by that many items.
  void write_count(size_t count) { write(static_cast<uint32_t>(count)); }

  std::vector<uint8_t> take() {
    bytes_.resize(size_);
    return std::move(bytes_);
  }

 private:
  void append(const void* data, size_t size) {
    if (size == 0) return;
    if (size > bytes_.size() - size_) bytes_.resize(2 * (size_ + size));
    std::memcpy(bytes_.data() + size_, data, size);
    size_ += size;
  }

  std::vector<uint8_t> bytes_;  // and room
  size_t size_ = 0;
};

class WireReader {
 public:
  explicit WireReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  // Everything was read, and nothing was wrong.
  bool finished() const { return ok_ && bytes_.empty(); }
  void fail() { ok_ = false; }

  template <typename T>
  requires std::is_arithmetic_v<T> T read() {
    T value{};
    if (const uint8_t* data = take(sizeof(T))) std::memcpy(&value, data, sizeof(T));
    return value;
  }

  bool read_bool() {
    const auto value = read<uint8_t>();
    if (value > 1) fail();
    return value == 1;
  }

  // An enum whose values are 0 ... last.
  template <typename E>
  E read_enum(E last) {
    using Underlying = std::underlying_type_t<E>;
    const auto value = read<Underlying>();
    if (value < 0 || value > static_cast<Underlying>(last)) fail();
    return ok_ ? static_cast<E>(value) : E{};
  }

  std::string read_string(size_t max_size) {
    const size_t size = read_count(max_size, 1);
    const uint8_t* data = take(size);
    return data == nullptr ? std::string() : std::string(reinterpret_cast<const char*>(data), size);
  }

  template <typename T>
  std::vector<T> read_vector(size_t max_size) {
    static_assert(std::is_trivially_copyable_v<T>);
    const size_t count = read_count(max_size, sizeof(T));
    const uint8_t* data = take(count * sizeof(T));
    std::vector<T> values(data == nullptr ? 0 : count);
    if (!values.empty()) std::memcpy(values.data(), data, count * sizeof(T));
    return values;
  }

  template <typename T>
  std::optional<T> read_optional() {
    if (!read_bool() || !ok_) return std::nullopt;
    return read<T>();
  }

  // A count of items that take at least min_item_size bytes each; 0 when there cannot be so many.
  size_t read_count(size_t max_count, size_t min_item_size) {
    const size_t count = read<uint32_t>();
    if (count > max_count || count * min_item_size > bytes_.size()) fail();
    return ok_ ? count : 0;
  }

 private:
  const uint8_t* take(size_t size) {
    if (!ok_ || size > bytes_.size()) {
      ok_ = false;
      return nullptr;
    }
    const uint8_t* data = bytes_.data();
    bytes_ = bytes_.subspan(size);
    return data;
  }

  std::span<const uint8_t> bytes_;
  bool ok_ = true;
};

}  // namespace atom
