// The first rung of the head mix: one query of DAPE V2, all heads, in plain loops. mix_forward.h and mix_backward.h
// compute the same for a block of queries, walking up the keys. tests/tensor/cpu/tiles/rung_mix.cpp compares this with
// the reference executor, and the mix with this.  (Zheng et al. 2024, arXiv:2410.04798)
//   S_h[j]      = scale q_h.k_hj                                          0 on the left of key 0 and after key i
//   hidden_d[c] = leaky(u[min(c, left), d, i-c] + sum_{h,t} W1[d h t] S_h[c + t - left])            (first convolution)
//   A_h[j]      = S_h[j] + base[h, i-j] + sum_{d,t} W2[h d t] hidden_d[j + t - left]               (second convolution)
//   P_h         = softmax of A_h over the keys up to i,  o_h = sum_j P_h[j] v_hj
// A tap reads at most `left` columns back and `right` columns ahead, so that hidden has up to `right` columns more than
// the query has keys. The run ends with its last token, and hidden with it.
// Backward computes all of it again. A gradient follows each convolution back, from the column that was read:
//   dv_hj      += P_h[j] do_h,  dA_h[j] = P_h[j] (do_h.v_hj - o_h.do_h),  dbase[h, i-j] += dA_h[j]
//   dW2[h d t] += sum_j dA_h[j] hidden_d[j + t - left]
//   dpre_d[c]   = leaky'(hidden_d[c]) sum_{h,t} W2[h d t] dA_h[c - t + left]
//   du[min(c, left), d, i-c] += dpre_d[c],  dW1[d h t] += sum_j dpre_d[j - t + left] S_h[j]
//   dS_h[j]     = dA_h[j] + sum_{d,t} W1[d h t] dpre_d[j - t + left]
//   dq_h       += scale dS_h[j] k_hj,  dk_hj += scale dS_h[j] q_h
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace whence::tiles {

// Numbers of each head, or hidden unit, at each column. Columns that do not exist hold 0.
template <class T> struct MixMap {
  std::int64_t columns;
  std::vector<T> numbers;

  MixMap(std::int64_t rows, std::int64_t count) : columns(count), numbers(static_cast<std::size_t>(rows * count)) {}
  T& at(std::int64_t row, std::int64_t c) { return numbers[static_cast<std::size_t>(row * columns + c)]; }
  T operator()(std::int64_t row, std::int64_t c) const {
    return c < 0 || c >= columns ? T(0) : numbers[static_cast<std::size_t>(row * columns + c)];
  }
};

// Query i of a run of `tokens`. T: float, double.
template <class T> struct MixRow {
  using extent = std::int64_t;

  template <class N> struct Inputs {
    N *q, *k, *v;    // [h t d]
    N* base;         // [h t], by distance
    N *w1, *u, *w2;  // [w h kernel], [left+1 w right+t], whose distances begin at -right, [h w kernel]
  };
  Inputs<const T> x;
  extent i, heads, tokens, dim, width, kernel, left;
  T scale, slope;

  void forward(T* o) const {  // o [h t d]
    const MixMap<T> p = maps().p;
    for (extent h = 0; h < heads; ++h)
      for (extent c = 0; c < dim; ++c) {
        o[row(h, i) + c] = T(0);
        for (extent j = 0; j <= i; ++j) o[row(h, i) + c] += p(h, j) * x.v[row(h, j) + c];
      }
  }

  // Adds the gradients to d.
  void backward(const T* d_o, const Inputs<T>& d) const {
    const auto [s, hidden, p] = maps();
    MixMap<T> da(heads, i + 1), d_pre(width, hidden.columns);
    for (extent h = 0; h < heads; ++h) {
      const T* to = d_o + row(h, i);
      T o_dot = T(0);
      for (extent j = 0; j <= i; ++j) o_dot += p(h, j) * dot(to, x.v + row(h, j));
      for (extent j = 0; j <= i; ++j) {
        da.at(h, j) = p(h, j) * (dot(to, x.v + row(h, j)) - o_dot);
        d.base[h * tokens + i - j] += da(h, j);
        for (extent c = 0; c < dim; ++c) d.v[row(h, j) + c] += p(h, j) * to[c];
      }
    }
    for (extent h = 0; h < heads; ++h)
      for (extent w = 0; w < width; ++w)
        for (extent t = 0; t < kernel; ++t) {
          for (extent j = 0; j <= i; ++j) d.w2[output(h, w, t)] += da(h, j) * hidden(w, j + t - left);
          for (extent c = 0; c < hidden.columns; ++c) d_pre.at(w, c) += x.w2[output(h, w, t)] * da(h, c - t + left);
        }
    for (extent w = 0; w < width; ++w)
      for (extent c = 0; c < hidden.columns; ++c) {
        if (hidden(w, c) <= T(0)) d_pre.at(w, c) *= slope;
        d.u[table(w, c)] += d_pre(w, c);
      }
    for (extent h = 0; h < heads; ++h)
      for (extent j = 0; j <= i; ++j) {
        T ds = da(h, j);
        for (extent w = 0; w < width; ++w)
          for (extent t = 0; t < kernel; ++t) {
            d.w1[input(w, h, t)] += d_pre(w, j - t + left) * s(h, j);
            ds += x.w1[input(w, h, t)] * d_pre(w, j - t + left);
          }
        for (extent c = 0; c < dim; ++c) {
          d.q[row(h, i) + c] += scale * ds * x.k[row(h, j) + c];
          d.k[row(h, j) + c] += scale * ds * x.q[row(h, i) + c];
        }
      }
  }

 private:
  extent row(extent h, extent t) const { return (h * tokens + t) * dim; }
  extent input(extent w, extent h, extent t) const { return (w * heads + h) * kernel + t; }
  extent output(extent h, extent w, extent t) const { return (h * width + w) * kernel + t; }
  extent right() const { return kernel - 1 - left; }
  extent table(extent w, extent c) const {
    return (std::min(c, left) * width + w) * (right() + tokens) + right() + i - c;
  }
  T dot(const T* a, const T* b) const { return std::inner_product(a, a + dim, b, T(0)); }

  struct Maps {
    MixMap<T> s, hidden, p;
  };
  Maps maps() const {
    Maps all{{heads, i + 1}, {width, std::min(i + 1 + right(), tokens)}, {heads, i + 1}};
    auto& [s, hidden, p] = all;
    for (extent h = 0; h < heads; ++h)
      for (extent j = 0; j <= i; ++j) s.at(h, j) = scale * dot(x.q + row(h, i), x.k + row(h, j));
    for (extent w = 0; w < width; ++w)
      for (extent c = 0; c < hidden.columns; ++c) {
        T sum = x.u[table(w, c)];
        for (extent h = 0; h < heads; ++h)
          for (extent t = 0; t < kernel; ++t) sum += x.w1[input(w, h, t)] * s(h, c + t - left);
        hidden.at(w, c) = sum > T(0) ? sum : slope * sum;
      }
    for (extent h = 0; h < heads; ++h) {
      T top = T(-INFINITY), total = T(0);
      for (extent j = 0; j <= i; ++j) {
        T& a = p.at(h, j) = s(h, j) + x.base[h * tokens + i - j];
        for (extent w = 0; w < width; ++w)
          for (extent t = 0; t < kernel; ++t) a += x.w2[output(h, w, t)] * hidden(w, j + t - left);
        top = std::max(top, a);
      }
      for (extent j = 0; j <= i; ++j) total += p.at(h, j) = std::exp(p(h, j) - top);
      for (extent j = 0; j <= i; ++j) p.at(h, j) /= total;
    }
    return all;
  }
};

}  // namespace whence::tiles
