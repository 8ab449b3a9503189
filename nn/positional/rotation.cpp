#include "nn/positional/rotation.h"

#include "tensor/raw.h"

namespace whence {

// q:[b h i d], k:[b h j d]
void Rotating::rotate(Tensor& query, Tensor& key, const AttendContext& context) const {
  const Positions& positions = context.positions;
  std::vector<index_t> tokens = follows_run_ ? positions.tokens : std::vector<index_t>();
  if (tokens.empty()) tokens = {positions.key.size(-1)};
  const auto sequences = static_cast<index_t>(tokens.size()), dims = query.size(-1);
  std::vector<double> theta, magnitude;
  bool grows = false;
  for (const index_t count : tokens) {
    const PairSpeeds of_run = speeds_for(static_cast<double>(count));
    theta.insert(theta.end(), of_run.theta.begin(), of_run.theta.end());
    for (index_t dim = 0; dim < dims; ++dim) magnitude.push_back(dim < width() ? of_run.magnitude : 1);
    grows |= of_run.magnitude != 1;
  }
  const Tensor speeds =
      Tensor::of(theta, sequences == 1 ? Shape{pairs()} : Shape{sequences, 1, 1, pairs()}, DType::f64);  // theta
  const auto rotated = [&](const Tensor& x, const Tensor& of_tokens) {
    const Tensor y =
        rotary(x, context.kept_once(rotation_angles(of_tokens, speeds)), rotation_.interleaved);  // [b h t d]
    if (!grows) return y;
    return y * context.kept_once(Tensor::of(magnitude, {sequences, 1, 1, dims}, x.dtype()));
  };
  query = probe("rotated_q", rotated(query, positions.query));  // [b h i d]
  key = probe("rotated_k", rotated(key, positions.key));        // [b g j d]
}

std::vector<ProbeInfo> Rotating::probes(const std::string& more) {
  return {{"rotated_q", "b h i d", "queries, each pair rotated by its position", "R_i q_i" + more},
      {"rotated_k", "b h j d", "keys, each pair rotated by its position", "R_j k_j" + more}};
}

}  // namespace whence
