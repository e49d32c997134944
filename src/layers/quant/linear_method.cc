#include "layers/quant/linear_method.h"

#include "layers/quant/unquantized.h"

namespace atom {

std::unique_ptr<LinearMethod> make_linear_method(const BuildContext& build,
                                                 const LinearPartition& partition) {
  return std::make_unique<UnquantizedLinearMethod>(build, partition);
}

}  // namespace atom
