// A node of the model's tree: layers and models are Modules that name their children and their
// Parameters the way a checkpoint names them. The tree owns nothing: children and parameters are
// members of the derived class. Built and loaded by one thread, const afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "nn/parameter.h"
#include "tensor/stream.h"

namespace atom {

struct NamedParameter {
  std::string name;  // "model.layers.0.self_attn.qkv_proj.weight"
  Parameter* parameter;
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Those of this module and all below it, in the order they were registered: own parameters first.
  std::vector<NamedParameter> named_parameters() const;
  int64_t parameter_bytes() const;
  void allocate_parameters(const Stream& stream);

  // Bytes that this module and all below it hold once loaded, known before anything is allocated.
  // A module that repacks its parameters or keeps tables says so here.
  virtual int64_t resident_bytes() const;

  // Called once when every parameter is loaded: repack or requantize weights here. An override
  // calls Module::finish_load, which recurses into the children.
  virtual Status finish_load(const Stream& stream);

 protected:
  // A name may contain dots ("layers.0"). A child named "" adds its parameters to this module's
  // own names. Names are unique within a module.
  void register_module(std::string name, Module* child);
  void register_parameter(std::string name, Parameter* parameter);

 private:
  void collect(const std::string& prefix, std::vector<NamedParameter>* out) const;

  std::vector<std::pair<std::string, Parameter*>> parameters_;
  std::vector<std::pair<std::string, Module*>> children_;
};

}  // namespace atom
