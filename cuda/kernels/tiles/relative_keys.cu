// Attention in tiles with relative keys: the launches of attention.cu, with kernels of their own, which compilers work on beside the others.
#define WHENCE_RELATIVE_KEYS
#include "cuda/kernels/tiles/attention.cu"
