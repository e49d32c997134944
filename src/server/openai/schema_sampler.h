// For tests: JSON Schema, as far as the OpenAPI document uses it, as an independent judge of the
// parsers. Draws values that fit a schema, spoils them, and says whether a value fits.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <regex>
#include <string>

#include "base/json.h"

namespace atom::server {

class SchemaSampler {
 public:
  // `document` is borrowed; #/... references are looked up in it.
  SchemaSampler(const OrderedJson* document, uint64_t seed) : document_(document), random_(seed) {}

  bool fits(const OrderedJson& value, const OrderedJson& schema);
  void draw(const OrderedJson& schema, OrderedJson* value);
  // Replaces, removes or adds something somewhere in `value`.
  void spoil(OrderedJson* value);
  const OrderedJson& resolve(const OrderedJson& schema) const;

 private:
  bool fits_type(const OrderedJson& value, const std::string& type) const;
  bool fits_string(const std::string& text, const OrderedJson& schema);
  bool fits_array(const OrderedJson& value, const OrderedJson& schema);
  bool fits_object(const OrderedJson& value, const OrderedJson& schema);
  std::string draw_string(const OrderedJson& schema);
  void draw_number(const OrderedJson& schema, bool is_integer, OrderedJson* value);
  void draw_object(const OrderedJson& schema, OrderedJson* value);
  size_t below(size_t bound) { return random_() % bound; }

  const OrderedJson* document_;
  std::mt19937_64 random_;
  std::map<std::string, std::regex> patterns_;
};

}  // namespace atom::server
