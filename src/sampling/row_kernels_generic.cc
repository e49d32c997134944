#include "sampling/row_kernels_inl.h"

namespace atom {

const RowKernels kRowKernelsGeneric = {scan, exp_sum, exp_weights, count_greater, draw};

}  // namespace atom
