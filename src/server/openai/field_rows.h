// What the rows of generation_fields.def and of the files beside it stand for. To be included where
// `fields` is the std::vector<FieldSpec> to fill and `Target` is the type that they are read into.
#pragma once

#include "server/openai/field_table.h"

#define FIELD(name, kind, member, description) \
  fields.push_back(bound_field<Target>(        \
      name, kind, [](auto& target) -> auto& { return (target.member); }, description));
#define REQUIRED_FIELD(name, kind, member, description) \
  FIELD(name, kind, member, description)                \
  fields.back().is_required = true;
#define UNSUPPORTED(name, neutral, reason) \
  fields.push_back(unsupported_field(name, neutral, reason));
