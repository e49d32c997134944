// Which JSON Schemas can be enforced, and the same schemas in the form that the grammar engine
// takes. Whatever it would not enforce is refused here, by name and place; what it takes otherwise
// than the standard means is written out. An answer that follows the result follows the schema; not
// every text that follows the schema can come:
//   - objects have no properties but those named, unless the schema allows others explicitly or
//     names none, and properties come in the order of the schema;
//   - patterns match whole strings;
//   - schemas without a type that have keywords of a type get that type.
// Any thread.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"

namespace atom {

// `where` is the name of the schema in errors, which go on with the place: "schema.properties.age".
// kInvalidArgument when the schema is wrong or too large, kUnimplemented for a keyword that is not
// supported.
Result<OrderedJson> prepare_json_schema(const OrderedJson& schema, const std::string& where);

}  // namespace atom
