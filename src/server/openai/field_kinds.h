// The types that fields of a request have. A kind says what is taken, as text for messages
// (expected) and as JSON Schema (describe), and reads it: the two agree exactly. Lengths of strings
// are counted in characters, as JSON Schema counts them.
//
// read() checks `value` and, unless `out` is null, moves it there.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/openai/field_error.h"
#include "server/openai/field_table.h"
#include "server/openai/openapi.h"
#include "server/openai/requests.h"

namespace atom::server {

struct BoolKind {
  using Value = bool;
  std::string expected() const { return "true or false"; }
  bool read(OrderedJson& value, const FieldPath& path, bool* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// 5.0 is the integer 5, as far as doubles hold every integer; true is none.
bool read_integer(const OrderedJson& value,
                  const FieldPath& path,
                  int64_t min,
                  int64_t max,
                  int64_t* out,
                  ApiError* error);
void describe_integer(int64_t min, int64_t max, OrderedJson* schema);

template <typename T>
struct IntKind {
  using Value = T;
  T min = std::numeric_limits<T>::min();
  T max = std::numeric_limits<T>::max();

  std::string expected() const { return fmt::format("an integer in [{}, {}]", min, max); }
  bool read(OrderedJson& value, const FieldPath& path, T* out, ApiError* error) const {
    int64_t integer = 0;
    if (!read_integer(value, path, min, max, &integer, error)) return false;
    if (out != nullptr) *out = static_cast<T>(integer);
    return true;
  }
  void describe(const OpenApiOptions&, OrderedJson* schema) const {
    describe_integer(min, max, schema);
  }
};

// In the vocabulary, as far as the body's context knows it.
struct TokenIdKind {
  using Value = int32_t;
  std::string expected() const { return "a token id"; }
  bool read(OrderedJson& value, const FieldPath& path, int32_t* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// [min, max], or (min, max] with a min of 0: then what is too small for a float is its smallest.
struct NumberKind {
  using Value = float;
  float min;
  float max;
  bool excludes_min = false;

  std::string expected() const {
    return fmt::format("a number in {}{:g}, {:g}]", excludes_min ? '(' : '[', min, max);
  }
  bool read(OrderedJson& value, const FieldPath& path, float* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

struct StringKind {
  using Value = std::string;
  size_t min_length = 0;
  size_t max_length = 0;  // 0: as long as a body may be
  std::string_view punctuation =
      {};  // allowed besides ASCII letters and digits; none: any characters

  std::string expected() const;
  bool read(OrderedJson& value, const FieldPath& path, std::string* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// One of a few names.
struct EnumKind {
  using Value = std::string;
  std::vector<std::string> names;
  // Names that others know, and why they are not taken here.
  std::vector<std::pair<std::string, std::string>> refused = {};

  std::string expected() const;
  bool read(OrderedJson& value, const FieldPath& path, std::string* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// An object whose members have a table of their own. Without a Value it stays in the JSON.
template <typename T>
struct TableKind {
  using Value = T;
  const FieldTable* table;  // of a T; borrowed, static

  std::string expected() const { return "an object"; }
  bool read(OrderedJson& value, const FieldPath& path, T* out, ApiError* error) const {
    return table->read(value, path, out, error);
  }
  void describe(const OpenApiOptions& options, OrderedJson* schema) const {
    table->describe(options, schema);
  }
};
struct InPlace {};

// Any object, which stays in the JSON.
struct ObjectKind {
  using Value = InPlace;
  std::string expected() const { return "an object"; }
  bool read(OrderedJson& value, const FieldPath& path, InPlace* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

}  // namespace atom::server
