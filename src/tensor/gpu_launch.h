// For the files that launch kernels. They are compiled by the GPU's compiler, so this includes no
// more than plain declarations.
#pragma once

namespace atom {

// Ends the process when the last launch was refused: a configuration that the device cannot run.
void check_gpu_launch(const char* kernel);

}  // namespace atom
