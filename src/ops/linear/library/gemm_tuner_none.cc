// Builds without support for a GPU: there is no library to tune.
#include "ops/linear/library/gemm_tuner.h"

namespace atom::ops {

struct GemmTuner::State {
  GemmTuning result;
};

GemmTuner::GemmTuner(const Stream&, const std::string&, double)
    : state_(std::make_unique<State>()) {}

GemmTuner::~GemmTuner() = default;

void GemmTuner::tune(const std::function<void()>&) {}

void GemmTuner::save() {}

const GemmTuning& GemmTuner::result() const {
  return state_->result;
}

}  // namespace atom::ops
