#include "sampling/row_kernels_inl.h"

namespace atom {

const RowKernels kRowKernelsAvx2 = {scan, exp_sum, exp_weights, count_greater, draw};

}  // namespace atom
