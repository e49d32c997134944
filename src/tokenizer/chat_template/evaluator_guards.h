// What the evaluator undoes when it leaves a block, by return or by exception.
#pragma once

#include <memory>
#include <utility>

#include "tokenizer/chat_template/evaluator.h"
#include "tokenizer/chat_template/template_error.h"

namespace atom::jinja {

class Evaluator::DepthGuard {
 public:
  explicit DepthGuard(Evaluator* evaluator) : depth_(evaluator->depth_) {
    const int limit = evaluator->heap_.limits().max_depth;
    if (++depth_ > limit) {
      --depth_;
      fail_limit("evaluation is nested deeper than {} levels: does a macro call itself forever?",
                 limit);
    }
  }
  ~DepthGuard() { --depth_; }

 private:
  int& depth_;
};

// Runs a block in a new scope inside `parent`.
class Evaluator::ScopeGuard {
 public:
  ScopeGuard(Evaluator* evaluator, std::shared_ptr<Scope> parent)
      : evaluator_(*evaluator),
        outer_(std::exchange(evaluator->scope_, std::make_shared<Scope>(std::move(parent)))) {}
  ~ScopeGuard() { evaluator_.scope_ = std::move(outer_); }

 private:
  Evaluator& evaluator_;
  std::shared_ptr<Scope> outer_;
};

}  // namespace atom::jinja
