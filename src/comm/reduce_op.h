// How values of several ranks become one. Plain, so that the GPU's compiler reads it.
#pragma once

namespace atom {

enum class ReduceOp { kSum, kMin, kMax };

}  // namespace atom
