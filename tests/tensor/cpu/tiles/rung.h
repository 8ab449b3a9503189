// The first rung of tiled attention: one query of CoPE in plain loops. heads.h and programs/row_scan.h compute the same
// for a block of queries and a tile of keys at once. tests/tensor/cpu/tiles/rung.cpp compares this with the reference
// executor; tests/nn/attention/executor.cpp compares the tiles with it.
//   s_j = scale q.k_j,  g_j = 1 / (1 + e^{-s_j})              scores, and gates: does key j count?        (CoPE, Eq. 3)
//   p_j = min(g_j + ... + g_i, p_max)                         how many count from key j up to the query i      (Eq. 4)
//   a_j = s_j + (1-w) z[floor p_j] + w z[ceil p_j],  w = p_j - floor p_j                                    (Listing 1)
//   P_j = e^{a_j} / (e^{a_0} + ... + e^{a_i}),  o = sum_j P_j v_j
// Two ideas avoid every array of [i j]. Going from the last key to the first makes p a carry: one addition per key.
// Online softmax divides by a sum that is not known yet: sums so far are relative to the largest logit so far, and are
// scaled down when a larger one comes (Milakov and Gimelshein 2018; Dao et al. 2022).
// Backward keeps one number of each query, Z = log sum_j e^{a_j}, and computes the rest again (tiles keep the top and
// the sum, because the rounding of Z would make all P_j of a row too large or too small together):
//   dv_j += P_j do,  da_j = P_j (do.v_j - o.do)               P_j = e^{a_j - Z}; o.do = sum_j P_j do.v_j
//   dz[floor p_j] += (1-w) da_j,  dz[ceil p_j] += w da_j
//   dp_j = (z[ceil p_j] - z[floor p_j]) da_j                  0 at whole p_j and at p_max: one row is read
//   ds_j = da_j + g_j (1 - g_j) sum_{l<=j} dp_l               gate j is a term of p_l for every key l up to j
//   dq += scale ds_j k_j,  dk_j += scale ds_j q
// The sum over l <= j runs from the first key to the last, in the opposite direction: da, dp and g of the row are kept
// for it.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace whence::tiles {

// Query i of one head. T: float, double, ...
template <class T> struct CopeRow {
  using extent = std::int64_t;

  const T *q, *k, *v, *z;  // [d], [i+1 d], [i+1 d], [p_max+1]
  extent i, d, p_max;
  T scale;

  void forward(T* o, T& log_sum) const {
    using std::exp, std::log;
    T top = T(-INFINITY), total = T(0), gates = T(0);
    for (extent c = 0; c < d; ++c) o[c] = T(0);
    for (extent j = i; j >= 0; --j) {
      const T a = pair(j, gates).logit, higher = a > top ? a : top;
      const T fade = exp(top - higher), power = exp(a - higher);
      for (extent c = 0; c < d; ++c) o[c] = o[c] * fade + power * v[j * d + c];
      total = total * fade + power, top = higher;
    }
    for (extent c = 0; c < d; ++c) o[c] = o[c] / total;
    log_sum = top + log(total);
  }

  // o and log_sum are forward's. Adds to dq [d], dk and dv [i+1 d], dz [p_max+1].
  void backward(const T* o, T log_sum, const T* d_o, T* dq, T* dk, T* dv, T* dz) const {
    using std::exp;
    const T o_dot = dot(o, d_o);
    std::vector<T> da(static_cast<std::size_t>(i + 1)), dp = da, g = da;
    T gates = T(0);
    for (extent j = i; j >= 0; --j) {
      const Pair at = pair(j, gates);
      const T pattern = exp(at.logit - log_sum), gradient = pattern * (dot(d_o, v + j * d) - o_dot);
      for (extent c = 0; c < d; ++c) dv[j * d + c] = dv[j * d + c] + pattern * d_o[c];
      dz[at.floor] = dz[at.floor] + (T(1) - at.share) * gradient;
      dz[at.ceil] = dz[at.ceil] + at.share * gradient;
      const auto n = static_cast<std::size_t>(j);
      da[n] = gradient, dp[n] = (z[at.ceil] - z[at.floor]) * gradient, g[n] = at.gate;
    }
    T reached = T(0);  // sum of dp over the keys up to j
    for (extent j = 0; j <= i; ++j) {
      const auto n = static_cast<std::size_t>(j);
      reached = reached + dp[n];
      const T ds = da[n] + g[n] * (T(1) - g[n]) * reached;
      for (extent c = 0; c < d; ++c) {
        dq[c] = dq[c] + scale * ds * k[j * d + c];
        dk[j * d + c] = dk[j * d + c] + scale * ds * q[c];
      }
    }
  }

 private:
  struct Pair {
    T gate, logit, share;
    extent floor, ceil;
  };

  // Key j. `gates`: the sum over the keys after it, to which its own gate is added.
  Pair pair(extent j, T& gates) const {
    using std::exp;
    const T s = scale * dot(q, k + j * d), gate = T(1) / (T(1) + exp(-s));
    gates = gates + gate;
    const T p = gates < T(p_max) ? gates : T(p_max);
    const auto floor = static_cast<extent>(p);
    const T share = p - T(floor);
    const extent ceil = share > T(0) ? floor + 1 : floor;
    return {gate, s + (T(1) - share) * z[floor] + share * z[ceil], share, floor, ceil};
  }

  T dot(const T* a, const T* b) const {
    T sum = T(0);
    for (extent c = 0; c < d; ++c) sum = sum + a[c] * b[c];
    return sum;
  }
};

}  // namespace whence::tiles
