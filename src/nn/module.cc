#include "nn/module.h"

#include <algorithm>

namespace atom {

void Module::register_module(std::string name, Module* child) {
  CHECK(child != nullptr);
  for (const auto& [other, module] : children_) CHECK((name.empty() || other != name));
  children_.emplace_back(std::move(name), child);
}

void Module::register_parameter(std::string name, Parameter* parameter) {
  CHECK(parameter != nullptr);
  for (const auto& [other, registered] : parameters_) CHECK(other != name);
  parameters_.emplace_back(std::move(name), parameter);
}

void Module::collect(const std::string& prefix, std::vector<NamedParameter>* out) const {
  for (const auto& [name, parameter] : parameters_) out->push_back({prefix + name, parameter});
  for (const auto& [name, child] : children_) {
    child->collect(name.empty() ? prefix : prefix + name + ".", out);
  }
}

std::vector<NamedParameter> Module::named_parameters() const {
  std::vector<NamedParameter> parameters;
  collect("", &parameters);
  return parameters;
}

int64_t Module::parameter_bytes() const {
  int64_t bytes = 0;
  for (const NamedParameter& named : named_parameters()) bytes += named.parameter->num_bytes();
  return bytes;
}

int64_t Module::resident_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, parameter] : parameters_) bytes += parameter->num_bytes();
  for (const auto& [name, child] : children_) bytes += child->resident_bytes();
  return bytes;
}

void Module::allocate_parameters(const Stream& stream) {
  for (const NamedParameter& named : named_parameters()) named.parameter->allocate(stream);
}

Status Module::finish_load(const Stream& stream) {
  for (const auto& [name, child] : children_) RETURN_IF_ERROR(child->finish_load(stream));
  return {};
}

}  // namespace atom
