// What json_schema.cc asks of single keywords, references and pairs of schemas.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace atom {

// The keywords of one schema object: an error for one that is not supported, for two that are not
// supported together, and for a wrong `type`.
Status check_keywords(const OrderedJson& schema, const std::string& place);

// The types that a schema of no reference, enum or branches can have: those of "type", else those
// whose keywords it has; empty: any.
std::vector<std::string> types_of(const OrderedJson& schema);

// Whether a value is of the type that `schema` asks for, if it asks.
bool has_type(const OrderedJson& schema, const OrderedJson& value);

// Gives a branch of anyOf, oneOf or allOf the type that stands beside them.
Status give_type(const OrderedJson& schema, const std::string& place, OrderedJson* branch);

// The strings of a format are enforced.
Status check_format(const std::string& format, const std::string& place);

// `schema` has a $ref: it leads to a schema of `root`, and not in place to itself. `checked` holds
// what earlier calls have looked at.
Status check_reference(const OrderedJson& root,
                       const OrderedJson& schema,
                       const std::string& place,
                       std::set<const OrderedJson*>* checked);

// No value can follow two of the branches of a oneOf, as far as that is seen from types, values and
// properties that tell them apart.
Status check_exclusive(const OrderedJson& root,
                       const OrderedJson& branches,
                       const std::string& place);

}  // namespace atom
