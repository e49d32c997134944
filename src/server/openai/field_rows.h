// What the rows of generation_fields.def and of the files beside it stand for. To be included where
// `fields` is the std::vector<FieldSpec> to fill and `Target` is the type that they are read into.
#pragma once

#include "config/sampling_params.h"
#include "server/openai/answer_rule_kinds.h"
#include "server/openai/sampling_kinds.h"

#define FIELD(name, kind, member, description) \
  fields.push_back(bound_field<Target>(        \
      name, kind, [](auto& target) -> auto& { return (target.member); }, description));
#define REQUIRED_FIELD(name, kind, member, description) \
  FIELD(name, kind, member, description)                \
  fields.back().is_required = true;
#define HINT(name, reason) fields.push_back(hint_field(name, reason));
#define UNSUPPORTED(name, neutral, reason) \
  fields.push_back(unsupported_field(name, neutral, reason));
#define SAMPLING_FIELD(type, name, initial, rule, takers, help)     \
  if (((takers)&kTakenByRequests) != 0) {                           \
    fields.push_back(bound_field<Target>(                           \
        #name,                                                      \
        field_kind(rule),                                           \
        [](auto& target) -> auto& { return target.sampling.name; }, \
        help));                                                     \
  }
